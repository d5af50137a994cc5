"""Paged attention in Triton: decode split over the context, and prefill of any mix of lengths.

Both walk the keys of one KV head in tiles with a running maximum and sum in fp32 (Milakov and
Gimelshein 2018, Dao et al. 2022), in base 2. Query heads of a KV head are rows of one matmul
(Ainslie et al. 2023). Decode's contexts are shared out to several programs whose partial results a
second kernel joins (Dao et al. 2023, "Flash-Decoding").

The ids of the next tile's blocks are loaded one iteration early. Loaded where they are used, they
make the address of K depend on a load of the same iteration, and the compiler then keeps no tile
in flight ahead of the one it works on (tests/kernels/test_triton_attention.py shows both).
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention.contract import CONTRACTS
from kernels.attention.splits import Split, split
from kernels.attention.tiles import (
    BYTES_FOR_FP8,
    Tiles,
    attention_constants,
    decode_tiles,
    prefill_tiles,
    reduce_constants,
    reduce_options,
)
from kernels.attention.triton_tile import attend, block_ids
from kernels.targets import arch_of, processors

LOG2_E = 1.4426950408889634


@triton.jit
def share(context, parts, least, KEYS: tl.constexpr):
    """Tokens of each part: whole tiles, so that only the last tile of a context is ragged."""
    return tl.maximum(tl.cdiv(tl.cdiv(context, KEYS), parts), least) * KEYS


@triton.jit(do_not_specialize=["max_blocks", "least"])
def decode_kernel(
    q, cache, block_tables, contexts, out, parts, peaks,
    q_stride, head_stride, max_blocks, least, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Grid (kv_heads, parts, sequences). SPLIT: parts [sequences, heads, parts, dim] of fp32 and
    peaks [.., parts, 2] (maximum, sum) are written; else out [sequences, heads, dim]."""
    kv_head, part, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    context = tl.load(contexts + sequence)
    own = share(context, tl.num_programs(1), least, KEYS)
    first = part * own
    end = tl.minimum(first + own, context)
    if SPLIT and first >= context:
        return
    GROUP: tl.constexpr = HEADS // KV_HEADS
    rows, lanes = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    heads = kv_head * GROUP + rows
    valid = (rows < GROUP)[:, None] & (lanes < DIM)[None, :]
    table = block_tables + sequence.to(tl.int64) * max_blocks
    ahead = first + tl.arange(0, KEYS)
    ids = block_ids(table, ahead, end, BLOCK_SIZE)
    at = q + sequence.to(tl.int64) * q_stride + heads[:, None] * head_stride + lanes[None, :]
    queries = tl.load(at, mask=valid, other=0.0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, WIDTH], tl.float32)
    positions = tl.zeros([ROWS], tl.int32) + context
    base = cache + kv_head * DIM
    for start in range(first, end, KEYS):
        tokens = start + tl.arange(0, KEYS)
        current = ids
        ids = block_ids(table, tokens + KEYS, end, BLOCK_SIZE)
        top, total, acc = attend(
            queries, base, current, tokens, end, positions, scale, top, total, acc,
            KV_HEADS, DIM, WIDTH, BLOCK_SIZE, True,
        )  # fmt: skip
    row = sequence.to(tl.int64) * HEADS + heads
    if SPLIT:
        line = row * tl.num_programs(1) + part
        tl.store(peaks + 2 * line, top, mask=rows < GROUP)
        tl.store(peaks + 2 * line + 1, total, mask=rows < GROUP)
        tl.store(parts + line[:, None] * DIM + lanes[None, :], acc, mask=valid)
    else:
        acc = acc / tl.where(total > 0, total, 1.0)[:, None]  # no context (padding): zeros
        tl.store(
            out + row[:, None] * DIM + lanes[None, :], acc.to(out.dtype.element_ty), mask=valid
        )


@triton.jit(do_not_specialize=["splits", "least"])
def reduce_kernel(
    parts, peaks, contexts, out, splits, least,
    HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Grid (heads, sequences): join the parts that decode_kernel wrote of one row."""
    head, sequence = tl.program_id(0), tl.program_id(1)
    context = tl.load(contexts + sequence)
    which, lanes = tl.arange(0, PARTS), tl.arange(0, WIDTH)
    written = (which < splits) & (which * share(context, splits, least, KEYS) < context)
    line = (sequence.to(tl.int64) * HEADS + head) * splits + which
    top = tl.load(peaks + 2 * line, mask=written, other=float("-inf"))
    total = tl.load(peaks + 2 * line + 1, mask=written, other=0.0)
    # Without a context no part is written; a finite maximum then keeps the weights zero.
    weights = tl.exp2(top - tl.maximum(tl.max(top, 0), -3e38))
    valid = written[:, None] & (lanes < DIM)[None, :]
    acc = tl.load(parts + line[:, None] * DIM + lanes[None, :], mask=valid, other=0.0)
    whole = tl.sum(total * weights, 0)
    result = tl.sum(acc * weights[:, None], 0) / tl.where(whole > 0, whole, 1.0)
    at = out + (sequence.to(tl.int64) * HEADS + head) * DIM + lanes
    tl.store(at, result.to(out.dtype.element_ty), mask=lanes < DIM)


@triton.jit
def sequence_of(block, starts, sequences, QUERIES: tl.constexpr):
    """The sequence that block of queries belongs to: the last whose first block is not above.

    Sequence s owns the blocks from starts[s] / QUERIES + s on, as many as it needs and at most one
    more, so no list of blocks has to be made: the grid depends on shapes alone.
    """
    low, high = 0, sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts + middle) // QUERIES + middle <= block:
            low = middle
        else:
            high = middle
    return low


@triton.jit(do_not_specialize=["sequences", "max_blocks"])
def prefill_kernel(
    q, cache, block_tables, starts, contexts, out, sequences,
    q_stride, head_stride, max_blocks, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of queries, kv_heads). A tile's rows are GROUP heads of each of its queries."""
    GROUP: tl.constexpr = HEADS // KV_HEADS
    QUERIES: tl.constexpr = ROWS // GROUP
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the latest positions have most to read
    kv_head = tl.program_id(1)
    sequence = sequence_of(block, starts, sequences, QUERIES)
    begin = tl.load(starts + sequence)
    queries = tl.load(starts + sequence + 1) - begin
    local = (block - (begin // QUERIES + sequence)) * QUERIES
    if local >= queries:
        return
    context = tl.load(contexts + sequence)
    rows, lanes = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    query = local + rows // GROUP
    heads = kv_head * GROUP + rows % GROUP
    valid = ((rows < QUERIES * GROUP) & (query < queries))[:, None] & (lanes < DIM)[None, :]
    line = (begin + query).to(tl.int64)
    at = q + line[:, None] * q_stride + heads[:, None] * head_stride + lanes[None, :]
    tile = tl.load(at, mask=valid, other=0.0)
    positions = context - queries + query
    first = context - queries + local
    end = tl.minimum(first + QUERIES, context)
    whole = (first + 1) // KEYS * KEYS  # tokens in tiles that all rows see whole
    table = block_tables + sequence.to(tl.int64) * max_blocks
    ids = block_ids(table, tl.arange(0, KEYS), end, BLOCK_SIZE)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, WIDTH], tl.float32)
    base = cache + kv_head * DIM
    for start in range(0, whole, KEYS):
        tokens = start + tl.arange(0, KEYS)
        current = ids
        ids = block_ids(table, tokens + KEYS, end, BLOCK_SIZE)
        top, total, acc = attend(
            tile, base, current, tokens, end, positions, scale, top, total, acc,
            KV_HEADS, DIM, WIDTH, BLOCK_SIZE, False,
        )  # fmt: skip
    for start in range(whole, end, KEYS):
        tokens = start + tl.arange(0, KEYS)
        current = ids
        ids = block_ids(table, tokens + KEYS, end, BLOCK_SIZE)
        top, total, acc = attend(
            tile, base, current, tokens, end, positions, scale, top, total, acc,
            KV_HEADS, DIM, WIDTH, BLOCK_SIZE, True,
        )  # fmt: skip
    acc = acc / total[:, None]
    to = out + (line * HEADS + heads)[:, None] * DIM + lanes[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=valid)


def paged_decode(
    q: Tensor, cache: Tensor, block_tables: Tensor, contexts: Tensor, block_size: int,
    out: Tensor | None = None, splits: int | None = None,
) -> Tensor:  # fmt: skip
    """Attention of one new token of each sequence over its context, its own K and V included.

    q: [sequences, heads, dim]; cache: [slots, 2, kv_heads, dim] of q's dtype or float8_e4m3fn;
    block_tables: int32 [sequences, max_blocks]; contexts: int32 [sequences], tokens (0: a padding
    sequence, answered with zeros). splits: parts of each context; None: by rule.
    -> [sequences, heads, dim] of q's dtype.
    """
    CONTRACTS["paged_decode"].check(
        q=q,
        cache=cache,
        block_tables=block_tables,
        contexts=contexts,
        out=out,
        block_size=block_size,
    )
    out = _like(q) if out is None else out
    plan = _plan(q, cache, block_tables, block_size) if splits is None else Split(splits, 1)
    launch_decode(q, _readable(cache), block_tables, contexts, block_size, out, plan)
    return out


def _plan(q: Tensor, cache: Tensor, block_tables: Tensor, block_size: int) -> Split:
    kv_heads, tiles = cache.shape[2], _decode_tiles(q, cache)
    longest = triton.cdiv(block_tables.shape[1] * block_size, tiles.keys)
    return split(q.shape[0], kv_heads, longest, processors(q.device))


def _decode_tiles(q: Tensor, cache: Tensor) -> Tiles:
    heads, dim = q.shape[1:]
    return decode_tiles(arch_of(q.device), q.element_size(), dim, heads // cache.shape[2])


def launch_decode(
    q: Tensor, cache: Tensor, block_tables: Tensor, contexts: Tensor, block_size: int,
    out: Tensor, plan: Split,
) -> None:  # fmt: skip
    """cache: as the kernel reads it; uint8 where the device has no e4m3."""
    sequences, heads, dim = q.shape
    kv_heads, tiles = cache.shape[2], _decode_tiles(q, cache)
    shape = (sequences, heads, plan.parts) if plan.parts > 1 else (0,)
    parts = q.new_empty((*shape, dim), dtype=torch.float32)
    peaks = q.new_empty((*shape, 2), dtype=torch.float32)
    decode_kernel[(kv_heads, plan.parts, sequences)](
        q, cache, block_tables, contexts, out, parts, peaks,
        q.stride(0), q.stride(1), block_tables.shape[1], plan.least, _scale(dim),
        SPLIT=plan.parts > 1, **attention_constants(heads, kv_heads, dim, block_size, tiles),
        **tiles.options(),
    )  # fmt: skip
    if plan.parts > 1:
        _reduce(parts, peaks, contexts, out, plan, tiles)


def paged_prefill(
    q: Tensor, cache: Tensor, block_tables: Tensor, starts: Tensor, contexts: Tensor,
    block_size: int, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Causal attention of sequences of any number of new tokens: prompts, chunks, decodes.

    q: [rows, heads, dim], the sequences' rows one after another; starts: int32 [sequences + 1],
    rows before each; contexts: int32 [sequences], tokens in the cache with the new ones, so that
    row i of a sequence stands at position context - rows + i and sees positions up to its own.
    The rest as for `paged_decode`. -> [rows, heads, dim] of q's dtype.
    """
    CONTRACTS["paged_prefill"].check(
        q=q,
        cache=cache,
        block_tables=block_tables,
        starts=starts,
        contexts=contexts,
        out=out,
        block_size=block_size,
    )
    rows, heads, dim = q.shape
    kv_heads, sequences = cache.shape[2], contexts.shape[0]
    out = _like(q) if out is None else out
    tiles = prefill_tiles(arch_of(q.device), q.element_size(), dim, heads // kv_heads)
    blocks = rows // (tiles.rows // (heads // kv_heads)) + sequences
    prefill_kernel[(blocks, kv_heads)](
        q, _readable(cache), block_tables, starts, contexts, out, sequences,
        q.stride(0), q.stride(1), block_tables.shape[1], _scale(dim),
        **attention_constants(heads, kv_heads, dim, block_size, tiles), **tiles.options(),
    )  # fmt: skip
    return out


def _reduce(
    parts: Tensor, peaks: Tensor, contexts: Tensor, out: Tensor, plan: Split, tiles: Tiles
) -> None:
    sequences, heads, dim = out.shape
    reduce_kernel[(heads, sequences)](
        parts, peaks, contexts, out, plan.parts, plan.least,
        **reduce_constants(heads, dim, tiles, plan.parts), **reduce_options(plan.parts),
    )  # fmt: skip


def _like(q: Tensor) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


def _scale(dim: int) -> float:
    """exp(x / sqrt(dim)) as a power of two."""
    return LOG2_E / math.sqrt(dim)


def _readable(cache: Tensor) -> Tensor:
    """Devices before compute capability 8.9 have no e4m3: the kernel reads its bytes."""
    if cache.dtype is torch.float8_e4m3fn and arch_of(cache.device) in BYTES_FOR_FP8:
        return cache.view(torch.uint8)
    return cache
