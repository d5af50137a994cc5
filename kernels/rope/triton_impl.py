"""Rotary embedding in place and the write into the paged cache, in one pass on a GPU.

Rotation as in kernels/rope/reference.py (Su et al. 2021, equation 34, halves rotated as in Llama's
code), in fp32. Q, K and V of a row lie side by side, and so do K and V of a token in the cache:
head h of the row is place h - heads of the token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.pointwise_tiles import power_of_two, warps_for
from kernels.rope.contract import CONTRACTS
from kernels.rope.tiles import heads_of_program
from kernels.targets import arch_of


@triton.jit
def e4m3_bits(x):
    """float32 -> the bits of the nearest float8_e4m3fn, ties to even, saturating at 448 as PTX's
    satfinite does. In integers, since sm_80 has no such conversion."""
    bits = x.to(tl.int32, bitcast=True)
    size = tl.minimum(tl.abs(x), 448.0)
    word = size.to(tl.int32, bitcast=True)
    normal = ((word + 0x7FFFF + ((word >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2^-6 steps are 2^-9, the spacing of float32 at 2^14: the sum is rounded to them.
    small = (size + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    found = tl.where(size < 0.015625, small, normal)
    found = tl.where(x != x, 0x7F, found)
    return (found | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def store_cache(at, value, mask):
    """Rounded to the cache's dtype; a cache of bytes holds float8_e4m3fn."""
    if at.dtype.element_ty == tl.uint8:
        tl.store(at, e4m3_bits(value), mask=mask)
    else:
        tl.store(at, value.to(at.dtype.element_ty), mask=mask)


@triton.jit
def rope_and_cache_kernel(
    qkv, positions, cos, sin, slots, cache, heads, kv_heads,
    HEADS: tl.constexpr, HALF: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """HEADS heads of one row; HALF = dim / 2 elements of each half in COLUMNS lanes."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column = tl.arange(0, COLUMNS)
    inside = (head < heads + 2 * kv_heads)[:, None] & (column < HALF)[None, :]
    turned = (head < heads + kv_heads)[:, None]
    at = qkv + (row * (heads + 2 * kv_heads) + head)[:, None] * (2 * HALF) + column[None, :]
    low = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    angle = tl.load(positions + row).to(tl.int64) * HALF + column
    c = tl.load(cos + angle, mask=column < HALF, other=0.0)[None, :]
    s = tl.load(sin + angle, mask=column < HALF, other=0.0)[None, :]
    new_low = tl.where(turned, low * c - high * s, low)
    new_high = tl.where(turned, high * c + low * s, high)
    tl.store(at, new_low.to(qkv.dtype.element_ty), mask=inside & turned)
    tl.store(at + HALF, new_high.to(qkv.dtype.element_ty), mask=inside & turned)
    slot = tl.load(slots + row).to(tl.int64)
    cached = inside & (tl.where(slot < 0, -1, head) >= heads)[:, None]
    to = cache + (slot * 2 * kv_heads + head - heads)[:, None] * (2 * HALF) + column[None, :]
    store_cache(to, new_low, cached)
    store_cache(to + HALF, new_high, cached)


def rope_and_cache(
    qkv: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    slots: Tensor,
    cache: Tensor,
    heads: int,
) -> tuple[Tensor, Tensor]:
    """Rotate Q and K of each row in place, and write its K and V to its slot.

    qkv: [rows, heads + 2 * kv_heads, dim]; positions, slots: int32 [rows], a negative slot is not
    written; cos, sin: float32 [max_positions, dim / 2]; cache: [slots, 2, kv_heads, dim] of qkv's
    dtype or float8_e4m3fn -> (qkv, cache). Positions must be less than max_positions and slots
    less than those of the cache: that is not checked. Raises ContractError.
    """
    CONTRACTS["rope_and_cache"].check(
        qkv=qkv, positions=positions, cos=cos, sin=sin, slots=slots, cache=cache, heads=heads
    )
    rows, all_heads, dim = qkv.shape
    columns = power_of_two(dim // 2)
    mine = heads_of_program(dim)
    warps = warps_for(mine * columns, arch_of(qkv.device))
    stored = cache.view(torch.uint8) if cache.dtype == torch.float8_e4m3fn else cache
    if rows:
        rope_and_cache_kernel[(rows, triton.cdiv(all_heads, mine))](
            qkv, positions, cos, sin, slots, stored, heads, cache.shape[2],
            HEADS=mine, HALF=dim // 2, COLUMNS=columns, num_warps=warps,
        )  # fmt: skip
    return qkv, cache
