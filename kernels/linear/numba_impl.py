"""y = x W^T over all threads, for any number of rows, from weights packed by kernels.linear.pack.

A linear layer is a record of eight int64: see `LinearField`. Threads share the panels of 64
outputs; panels left over are shared by rows.
"""

from __future__ import annotations

from enum import IntEnum

from numba import njit

from kernels.silu_and_mul.numba_impl import silu_and_mul_vector
from kernels.simd.external import integers
from kernels.simd.tiles import (
    BF16,
    F32,
    INT4_GROUP,
    INT4_ROWS,
    INT8,
    MAX_ROWS,
    TILE_OUTPUTS,
    make_int4_tile,
    make_tile,
)
from kernels.simd.vectors import (
    LANES,
    add,
    load_bf16,
    load_f32,
    load_int,
    mul,
    store_bf16,
    store_f32,
    store_float,
    sum_lanes,
)


class LinearField(IntEnum):
    """int64 fields of a packed linear layer, by position."""

    KIND = 0
    WEIGHTS = 1  # address of the first panel
    PANEL_BYTES = 2
    PANELS = 3
    INNER = 4  # inputs
    SCALES = 5  # int8: address of a float32 for each output


KIND_BF16, KIND_F32, KIND_INT8, KIND_INT4 = range(4)
STORE, ADD, SILU_AND_MUL = range(3)
"""What becomes of a result: stored, added to what is there, or (32 gates beside their 32 ups in
each panel) gated."""

_LINE = 4 * TILE_OUTPUTS
TILE_BYTES = MAX_ROWS * _LINE
_KIND, _WEIGHTS, _PANEL_BYTES, _PANELS, _INNER, _SCALES = (8 * field for field in LinearField)

_bf16, _f32, _int8, _int4 = make_tile(BF16), make_tile(F32), make_tile(INT8), make_int4_tile()


@integers(8)
def _tile(
    kind: int, rows: int, x: int, stride: int, w: int, inner: int, sums: int, out: int
) -> None:
    """A few rows times one panel of 64 outputs -> float32 [rows, 64]."""
    if kind == KIND_BF16:
        _bf16(rows, x, stride, w, w + 64, w + 128, w + 192, 256, inner // 2, out, _LINE)
    elif kind == KIND_F32:
        _f32(rows, x, stride, w, w + 64, w + 128, w + 192, 256, inner, out, _LINE)
    elif kind == KIND_INT8:
        _int8(rows, x, stride, w, w + 16, w + 32, w + 48, 64, inner, out, _LINE)
    else:
        groups = inner // INT4_GROUP
        _int4(rows, x, stride, sums, 4 * groups, w, groups, out, _LINE)


@njit(nogil=True, error_model="numpy")
def _group_sums(x: int, stride: int, rows: int, groups: int, sums: int) -> None:
    """Sums of each row's groups of 32 bfloat16 -> float32 [rows, groups]."""
    for r in range(rows):
        for g in range(groups):
            at = x + r * stride + 2 * INT4_GROUP * g
            total = sum_lanes(add(load_bf16(at), load_bf16(at + 2 * LANES)))
            store_float(sums + 4 * (r * groups + g), total)


@njit(nogil=True, error_model="numpy")
def _finish(
    rows: int, tile: int, scales: int, mode: int, out: int, out_stride: int, out_bf16: int
) -> None:
    """From a tile's sums to where they belong; `out` is the panel's place in the first row."""
    for r in range(rows):
        line, to = tile + r * _LINE, out + r * out_stride
        for v in range(0, TILE_OUTPUTS, LANES):
            value = load_f32(line + 4 * v)
            if scales:
                value = mul(value, load_f32(scales + 4 * v))
            if mode == ADD:
                store_f32(to + 4 * v, add(load_f32(to + 4 * v), value))
            elif mode == STORE:
                store_f32(to + 4 * v, value)
            else:
                store_f32(line + 4 * v, value)
        if mode == SILU_AND_MUL:
            _gate(line, to, out_bf16)


@njit(nogil=True, error_model="numpy")
def _gate(line: int, to: int, out_bf16: int) -> None:
    for v in range(0, TILE_OUTPUTS // 2, LANES):
        gated = silu_and_mul_vector(
            load_f32(line + 4 * v), load_f32(line + 2 * TILE_OUTPUTS + 4 * v)
        )
        if out_bf16:
            store_bf16(to + 2 * v, gated)
        else:
            store_f32(to + 4 * v, gated)


@njit(nogil=True, error_model="numpy")
def _panel(
    linear: int,
    panel: int,
    first: int,
    last: int,
    x: int,
    x_stride: int,
    mode: int,
    out: int,
    out_stride: int,
    out_bf16: int,
    scratch: int,
) -> None:
    """Rows first..last-1 times one panel, in tiles of about equal height."""
    kind, inner = load_int(linear + _KIND), load_int(linear + _INNER)
    w = load_int(linear + _WEIGHTS) + panel * load_int(linear + _PANEL_BYTES)
    scales = load_int(linear + _SCALES)
    if scales:
        scales += panel * _LINE
    width = 4 * TILE_OUTPUTS
    if mode == SILU_AND_MUL:
        width = TILE_OUTPUTS if out_bf16 else 2 * TILE_OUTPUTS
    most = INT4_ROWS if kind == KIND_INT4 else MAX_ROWS
    row = first
    while row < last:
        tiles = (last - row + most - 1) // most
        rows = (last - row + tiles - 1) // tiles
        here = x + row * x_stride
        sums = scratch + TILE_BYTES + 4 * row * (inner // INT4_GROUP)
        _tile(kind, rows, here, x_stride, w, inner, sums, scratch)
        _finish(
            rows,
            scratch,
            scales,
            mode,
            out + row * out_stride + panel * width,
            out_stride,
            out_bf16,
        )
        row += rows


@integers(11)
def linear_share(
    thread: int,
    threads: int,
    linear: int,
    x: int,
    x_stride: int,
    rows: int,
    mode: int,
    out: int,
    out_stride: int,
    out_bf16: int,
    scratch: int,
) -> None:
    """This thread's share of x W^T.

    x: [rows, inner], float32 for int8 and float32 weights, else bfloat16, rows x_stride bytes
    apart; out: see STORE, ADD and SILU_AND_MUL. scratch: TILE_BYTES of this thread's own, and for
    int4 4 bytes for each group of each row behind them.
    """
    panels = load_int(linear + _PANELS)
    if load_int(linear + _KIND) == KIND_INT4:
        groups = load_int(linear + _INNER) // INT4_GROUP
        _group_sums(x, x_stride, rows, groups, scratch + TILE_BYTES)
    whole = panels // threads
    for panel in range(thread * whole, (thread + 1) * whole):
        _panel(linear, panel, 0, rows, x, x_stride, mode, out, out_stride, out_bf16, scratch)
    first, last = rows * thread // threads, rows * (thread + 1) // threads
    for panel in range(whole * threads, panels):
        if last > first:
            _panel(
                linear, panel, first, last, x, x_stride, mode, out, out_stride, out_bf16, scratch
            )
