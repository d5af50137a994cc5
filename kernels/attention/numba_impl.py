"""Grouped-query attention over a paged cache that is read in place (Ainslie et al. 2023).

The context is taken in stretches of 256 keys with a running maximum and sum (Milakov and
Gimelshein 2018, Dao et al. 2022). Stretches begin at multiples of 256 and a row sees the same
stretches in the same order whatever runs beside it, so that a token's result is the same bits as
part of a whole prompt, of a chunk, or as a decode.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from kernels.attention.cache_layout import MAX_QUERIES, PAGE_TOKENS
from kernels.simd.external import integers
from kernels.simd.tiles import BF16, F32, MAX_ROWS, make_table_tile, make_tile
from kernels.simd.vectors import (
    LANES,
    add,
    exp,
    fill,
    first_lanes,
    fma,
    load_f32,
    load_float,
    load_int,
    max_lanes,
    maximum,
    mul,
    store_bf16,
    store_f32,
    store_float,
    sub,
    sum_lanes,
)

STRETCH = 256
_PAGES = STRETCH // PAGE_TOKENS
_NEVER = -1e30
_SCORE_LINE = 4 * STRETCH

_scores_bf16, _scores_bf16_page = make_tile(BF16), make_tile(BF16, 1)
_scores_f32, _scores_f32_page = make_tile(F32), make_tile(F32, 1)
_values_bf16 = make_table_tile(BF16, 2, PAGE_TOKENS // 2)
_values_f32 = make_table_tile(F32, 2, PAGE_TOKENS)
_values_bf16_wide = make_table_tile(BF16, 4, PAGE_TOKENS // 2)
_values_f32_wide = make_table_tile(F32, 4, PAGE_TOKENS)


@integers(9)
def _scores_tile(
    rows: int, q: int, dim: int, bf16: int, base: int, page_bytes: int, table: int, pages: int,
    out: int,
) -> None:  # fmt: skip
    """A few queries times the keys of 1 or 4 pages -> float32 [rows, pages * 16]."""
    a = base + load_int(table) * page_bytes
    steps = dim // 2 if bf16 else dim
    stride = 2 * dim if bf16 else 4 * dim
    if pages == 1:
        if bf16:
            _scores_bf16_page(rows, q, stride, a, 64, steps, out, _SCORE_LINE)
        else:
            _scores_f32_page(rows, q, stride, a, 64, steps, out, _SCORE_LINE)
        return
    b = base + load_int(table + 8) * page_bytes
    c = base + load_int(table + 16) * page_bytes
    d = base + load_int(table + 24) * page_bytes
    if bf16:
        _scores_bf16(rows, q, stride, a, b, c, d, 64, steps, out, _SCORE_LINE)
    else:
        _scores_f32(rows, q, stride, a, b, c, d, 64, steps, out, _SCORE_LINE)


@integers(9)
def _values_tile(
    rows: int, p: int, dim: int, bf16: int, base: int, page_bytes: int, table: int, pages: int,
    out: int,
) -> None:  # fmt: skip
    """Weights of a stretch times its values -> float32 [rows, dim]."""
    stride, step = (2 * STRETCH if bf16 else 4 * STRETCH), 4 * dim
    d = 0
    while d < dim:
        at, to = base + 4 * d, out + 4 * d
        if dim - d >= 64:
            if bf16:
                _values_bf16_wide(rows, p, stride, table, pages, at, page_bytes, step, to, 4 * dim)
            else:
                _values_f32_wide(rows, p, stride, table, pages, at, page_bytes, step, to, 4 * dim)
            d += 64
        else:
            if bf16:
                _values_bf16(rows, p, stride, table, pages, at, page_bytes, step, to, 4 * dim)
            else:
                _values_f32(rows, p, stride, table, pages, at, page_bytes, step, to, 4 * dim)
            d += 32


@njit(nogil=True, error_model="numpy")
def _softmax_row(scores: int, keys: int, lanes: int, p: int, bf16: int) -> Any:
    """exp(score - largest) of the first `keys` scores, zero up to `lanes`; (largest, sum)."""
    never = fill(_NEVER)
    largest = never
    for i in range(0, lanes, LANES):
        s = first_lanes(load_f32(scores + 4 * i), keys - i, never)
        store_f32(scores + 4 * i, s)
        largest = maximum(largest, s)
    top = max_lanes(largest)
    total = fill(0.0)
    for i in range(0, lanes, LANES):
        e = exp(sub(load_f32(scores + 4 * i), fill(top)))
        e = first_lanes(e, keys - i, fill(0.0))
        total = add(total, e)
        if bf16:
            store_bf16(p + 2 * i, e)
        else:
            store_f32(p + 4 * i, e)
    return top, sum_lanes(total)


@njit(nogil=True, error_model="numpy")
def _merge(out: int, part: int, dim: int, keep: Any, take: Any) -> None:
    """out = out * keep + part * take."""
    for d in range(0, dim, LANES):
        taken = mul(load_f32(part + 4 * d), fill(take))
        store_f32(out + 4 * d, fma(load_f32(out + 4 * d), fill(keep), taken))


@njit(nogil=True, error_model="numpy")
def _exp_scalar(x: Any) -> Any:
    return max_lanes(exp(fill(x)))


@njit(nogil=True, error_model="numpy")
def _merge_row(state: int, out: int, part: int, dim: int, top: Any, total: Any) -> None:
    """Add a stretch to a query's running result; state: its maximum and its sum."""
    before = load_float(state)
    both = max(before, top)
    keep, take = _exp_scalar(before - both), _exp_scalar(top - both)
    store_float(state, both)
    store_float(state + 4, load_float(state + 4) * keep + total * take)
    _merge(out, part, dim, keep, take)


@njit(nogil=True, error_model="numpy")
def _attend_stretch(
    queries: int, group: int, position: int, stretch: int, q: int, dim: int, bf16: int, keys: int,
    page_bytes: int, table: int, pages: int, memory: int,
) -> None:  # fmt: skip
    """All queries of a task over one stretch of keys that begins at position `stretch`."""
    states = memory
    sums = states + 8 * MAX_QUERIES
    scores = sums + 8 * MAX_QUERIES
    weights = scores + _SCORE_LINE * MAX_QUERIES
    parts = weights + _SCORE_LINE * MAX_QUERIES
    outs = parts + 4 * dim * MAX_QUERIES
    element = 2 if bf16 else 4
    row = 0
    while row < queries:
        tiles = (queries - row + MAX_ROWS - 1) // MAX_ROWS
        rows = (queries - row + tiles - 1) // tiles
        page = 0
        while page < pages:
            step = 4 if pages - page >= 4 else 1
            _scores_tile(
                rows, q + row * dim * element, dim, bf16, keys, page_bytes, table + 8 * page, step,
                scores + row * _SCORE_LINE + 4 * PAGE_TOKENS * page,
            )  # fmt: skip
            page += step
        for r in range(row, row + rows):
            seen = min(STRETCH, max(0, position + r // group + 1 - stretch))
            line = weights + r * STRETCH * element
            top, total = _softmax_row(
                scores + r * _SCORE_LINE, seen, pages * PAGE_TOKENS, line, bf16
            )
            store_float(sums + 8 * r, top)
            store_float(sums + 8 * r + 4, total)
        _values_tile(
            rows, weights + row * STRETCH * element, dim, bf16, keys + page_bytes // 2, page_bytes,
            table, pages, parts + 4 * dim * row,
        )  # fmt: skip
        for r in range(row, row + rows):
            if position + r // group >= stretch:
                _merge_row(
                    states + 8 * r, outs + 4 * dim * r, parts + 4 * dim * r, dim,
                    load_float(sums + 8 * r), load_float(sums + 8 * r + 4),
                )  # fmt: skip
        row += rows


def scratch_bytes(dim: int) -> int:
    """Memory that one thread's attention needs."""
    return MAX_QUERIES * (16 + 2 * _SCORE_LINE + 12 * dim)


@integers(14)
def attend(
    rows: int, group: int, position: int, q: int, q_stride: int, dim: int, bf16: int, keys: int,
    page_bytes: int, table: int, out: int, out_stride: int, out_bf16: int,
    memory: int,
) -> None:  # fmt: skip
    """Queries of `group` heads that share a KV head, for `rows` positions from `position` on.

    q: [rows, group * dim] in the cache's dtype, scaled, rows q_stride bytes apart; keys: address of
    the KV head in page 0 of the layer; table: int64 page of each 16 tokens of the sequence; out:
    [rows, group * dim], rows out_stride bytes apart. rows * group is at most MAX_QUERIES.
    """
    queries, element = rows * group, (2 if bf16 else 4)
    states = memory
    outs = memory + MAX_QUERIES * (16 + 2 * _SCORE_LINE + 4 * dim)
    mine = outs + 4 * dim * MAX_QUERIES
    for r in range(rows):
        for i in range(0, group * dim * element, 64):
            store_f32(mine + r * group * dim * element + i, load_f32(q + r * q_stride + i))
    for r in range(queries):
        store_float(states + 8 * r, _NEVER)
        store_float(states + 8 * r + 4, 0.0)
        for d in range(0, dim, LANES):
            store_f32(outs + 4 * (r * dim + d), fill(0.0))
    context = position + rows
    for stretch in range(0, context, STRETCH):
        pages = min(_PAGES, (context - stretch + PAGE_TOKENS - 1) // PAGE_TOKENS)
        _attend_stretch(
            queries, group, position, stretch, mine, dim, bf16, keys, page_bytes,
            table + 8 * (stretch // PAGE_TOKENS), pages, memory,
        )  # fmt: skip
    for r in range(queries):
        whole = fill(1.0 / load_float(states + 8 * r + 4))
        to = out + (r // group) * out_stride + (r % group) * dim * (2 if out_bf16 else 4)
        for d in range(0, dim, LANES):
            value = mul(load_f32(outs + 4 * (r * dim + d)), whole)
            if out_bf16:
                store_bf16(to + 2 * d, value)
            else:
                store_f32(to + 4 * d, value)
