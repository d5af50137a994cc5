"""Rotary embedding of one row's queries and keys (Su et al. 2021, equation 34), and the cache.

Queries are scaled by 1 / sqrt(head_dim) and rounded; keys and values go to their place in the
paged cache (kernels.attention.cache_layout).
"""

from __future__ import annotations

from typing import Any

from numba import njit

from kernels.attention.cache_layout import PAGE_TOKENS
from kernels.simd.vectors import (
    LANES,
    copy_16_bits,
    copy_32_bits,
    fill,
    fma,
    load_f32,
    mul,
    store_bf16,
    store_f32,
    sub,
)


@njit(nogil=True, error_model="numpy")
def _rotate(x: int, dim: int, cos: int, sin: int, scale: Any) -> None:
    """One head in place, halves rotated as in Llama's code."""
    half = 2 * dim  # bytes
    for i in range(0, dim // 2, LANES):
        low, high = load_f32(x + 4 * i), load_f32(x + half + 4 * i)
        c, s = load_f32(cos + 4 * i), load_f32(sin + 4 * i)
        store_f32(x + 4 * i, mul(sub(mul(low, c), mul(high, s)), fill(scale)))
        store_f32(x + half + 4 * i, mul(fma(high, c, mul(low, s)), fill(scale)))


@njit(nogil=True, error_model="numpy")
def _round_row(x: int, width: int, out: int, out_bf16: int) -> None:
    for i in range(0, width, LANES):
        if out_bf16:
            store_bf16(out + 2 * i, load_f32(x + 4 * i))
        else:
            store_f32(out + 4 * i, load_f32(x + 4 * i))


@njit(nogil=True, error_model="numpy")
def _write_bf16(k: int, v: int, head: int, token: int, dim: int) -> None:
    """k, v: bfloat16 [dim] of one token; head: address of the head in its page."""
    for d in range(0, dim, 2):
        copy_32_bits(head + 2 * d * PAGE_TOKENS + 4 * token, k + 2 * d)
    values = head + 2 * PAGE_TOKENS * dim + (token // 2) * 4 * dim + 2 * (token % 2)
    for d in range(dim):
        copy_16_bits(values + 4 * d, v + 2 * d)


@njit(nogil=True, error_model="numpy")
def _write_f32(k: int, v: int, head: int, token: int, dim: int) -> None:
    for d in range(dim):
        copy_32_bits(head + 4 * d * PAGE_TOKENS + 4 * token, k + 4 * d)
    values = head + 4 * PAGE_TOKENS * dim + token * 4 * dim
    for d in range(dim):
        copy_32_bits(values + 4 * d, v + 4 * d)


@njit(nogil=True, error_model="numpy")
def rope_row(
    qkv: int,
    heads: int,
    kv_heads: int,
    dim: int,
    cos: int,
    sin: int,
    q: int,
    page: int,
    head_bytes: int,
    token: int,
    bf16: int,
    scratch: int,
) -> None:
    """qkv: float32 [(heads + 2 kv_heads) * dim] of one row, changed in place; q: where the queries
    go; page, token: where the cache holds the row; cos, sin: float32 [dim / 2] of its position."""
    scale = dim**-0.5
    for h in range(heads):
        _rotate(qkv + 4 * h * dim, dim, cos, sin, scale)
    keys = qkv + 4 * heads * dim
    values = keys + 4 * kv_heads * dim
    for h in range(kv_heads):
        _rotate(keys + 4 * h * dim, dim, cos, sin, 1.0)
    _round_row(qkv, heads * dim, q, bf16)
    if bf16:
        _round_row(keys, 2 * kv_heads * dim, scratch, 1)
        for h in range(kv_heads):
            k = scratch + 2 * h * dim
            _write_bf16(k, k + 2 * kv_heads * dim, page + h * head_bytes, token, dim)
    else:
        for h in range(kv_heads):
            k = keys + 4 * h * dim
            _write_f32(k, values + 4 * h * dim, page + h * head_bytes, token, dim)
