"""Matmul microkernels: a few rows times 64 outputs, held in registers over the whole sum.

The sum of one output runs over the inner dimension in order, in one register lane. So a row's
result is the same bits for any number of rows in the tile, in the batch, or in the schedule; and a
single row streams the weights at the speed of memory, since they lie in the order they are read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from kernels.simd.vectors import (
    BF16_PAIRS,
    FLOAT,
    FLOATS,
    HALVES,
    I8,
    I32,
    I64,
    INTS,
    LANES,
    WORDS,
    call,
    constant,
    load,
    operation,
    splat,
    store,
)

TILE_OUTPUTS = 64
MAX_ROWS = 6  # 24 accumulators, 4 weights and a broadcast fill the 32 registers

Weights = Callable[[Any, Any], Any]
"""(builder, address) -> sixteen outputs' weights of one step of the sum."""


def _bf16_weights(b: Any, address: Any) -> Any:
    return b.bitcast(load(b, address, INTS, 4), BF16_PAIRS)


def _bf16_row(b: Any, address: Any) -> Any:
    """Two neighbouring bfloat16 of a row, for every output."""
    return b.bitcast(splat(b, load(b, address, I32, 2)), BF16_PAIRS)


def _bf16_accumulate(b: Any, acc: Any, row: Any, weights: Any) -> Any:
    return call(b, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, acc, row, weights)


def _f32_weights(b: Any, address: Any) -> Any:
    return load(b, address, FLOATS, 4)


def _int8_weights(b: Any, address: Any) -> Any:
    return b.sitofp(b.sext(load(b, address, ir.VectorType(I8, LANES), 1), INTS), FLOATS)


def _f32_row(b: Any, address: Any) -> Any:
    return splat(b, load(b, address, FLOAT, 4))


def _f32_accumulate(b: Any, acc: Any, row: Any, weights: Any) -> Any:
    return call(b, "llvm.fma.v16f32", FLOATS, row, weights, acc)


class Kind:
    """How a tile reads weights and rows. A step of the sum takes `row_bytes` of a row."""

    def __init__(
        self, weights: Weights, row: Weights, accumulate: Callable[..., Any], vector_bytes: int
    ) -> None:
        self.weights, self.row, self.accumulate = weights, row, accumulate
        self.vector_bytes, self.row_bytes = vector_bytes, 4


BF16 = Kind(_bf16_weights, _bf16_row, _bf16_accumulate, 64)
F32 = Kind(_f32_weights, _f32_row, _f32_accumulate, 64)
INT8 = Kind(_int8_weights, _f32_row, _f32_accumulate, 16)


def _offset(b: Any, address: Any, count: Any, size: int) -> Any:
    return b.add(address, b.mul(count, ir.Constant(I64, size)))


def make_tile(kind: Kind, vectors: int = TILE_OUTPUTS // LANES) -> Any:
    """tile(rows, x, x_stride, w0 … , w_step, steps, out, out_stride): out = x W, in float32.

    All but rows are addresses and byte counts. x: 1 to MAX_ROWS rows x_stride apart; w0 …: the
    first weights of each vector of 16 outputs, which move by w_step each step of the sum; out:
    [rows, vectors * 16].
    """

    def tile(b: Any, rows: int, a: Any) -> None:
        x, x_stride, *weights, w_step, steps, out, out_stride = a
        starts = _rows(b, x, x_stride, rows)

        def body(i: Any, accs: list[list[Any]]) -> list[list[Any]]:
            moved = b.mul(i, w_step)
            w = [kind.weights(b, b.add(start, moved)) for start in weights]
            row = [kind.row(b, _offset(b, start, i, kind.row_bytes)) for start in starts]
            return _accumulate(b, kind, accs, row, w)

        accs = _loop(b, steps, _zeros(rows, vectors), body)
        _store_tile(b, accs, out, out_stride)

    return _by_rows(MAX_ROWS, 6 + vectors, tile)


def make_table_tile(kind: Kind, vectors: int, steps_per_block: int) -> Any:
    """tile(rows, x, x_stride, table, blocks, base, block_stride, w_step, out, out_stride).

    As make_tile, but the weights lie in blocks: block i starts at base + table[i] * block_stride
    (table: int64), and holds steps_per_block steps, w_step bytes apart.
    """

    def tile(b: Any, rows: int, a: Any) -> None:
        x, x_stride, table, blocks, base, block_stride, w_step, out, out_stride = a
        starts = _rows(b, x, x_stride, rows)
        size = ir.Constant(I64, steps_per_block)

        def body(i: Any, accs: list[list[Any]]) -> list[list[Any]]:
            block = load(b, _offset(b, table, b.udiv(i, size), 8), I64, 8)
            start = b.add(base, b.mul(block, block_stride))
            here = b.add(start, b.mul(b.urem(i, size), w_step))
            w = [
                kind.weights(b, b.add(here, ir.Constant(I64, v * kind.vector_bytes)))
                for v in range(vectors)
            ]
            row = [kind.row(b, _offset(b, first, i, kind.row_bytes)) for first in starts]
            return _accumulate(b, kind, accs, row, w)

        accs = _loop(b, b.mul(blocks, size), _zeros(rows, vectors), body)
        _store_tile(b, accs, out, out_stride)

    return _by_rows(MAX_ROWS, 9, tile)


def _by_rows(most: int, arguments: int, tile: Callable[[Any, int, Any], None]) -> Any:
    """One operation that jumps to the code for its number of rows, 1 to `most`."""

    def switch(b: Any, context: Any, a: Any) -> Any:
        end = b.append_basic_block("tile.done")
        cases = [b.append_basic_block(f"tile.{rows}") for rows in range(1, most + 1)]
        jump = b.switch(a[0], cases[0])
        for rows, case in enumerate(cases, 1):
            if rows > 1:
                jump.add_case(ir.Constant(I64, rows), case)
            b.position_at_end(case)
            tile(b, rows, a[1:])
            b.branch(end)
        b.position_at_end(end)
        return context.get_dummy_value()

    return operation(types.void, *[types.int64] * (1 + arguments))(switch)


def _rows(b: Any, x: Any, stride: Any, rows: int) -> list[Any]:
    """Addresses of the rows."""
    return [_offset(b, x, stride, r) for r in range(rows)]


def _zeros(rows: int, vectors: int) -> list[list[Any]]:
    return [[constant(0.0)] * vectors for _ in range(rows)]


INT4_GROUP = 32  # inputs that share a scale and a minimum, as in GGUF's Q4_1
_INT4_STEPS = 4  # 64-byte vectors of a group: 16 outputs times 8 inputs, four to a 16-bit lane
INT4_RECORD = 2 * 2 * TILE_OUTPUTS + TILE_OUTPUTS * INT4_GROUP // 2
"""Bytes of a group: 64 scales and 64 minima in half precision, then the nibbles."""


INT4_ROWS = 3  # accumulators of a group and of the whole sum share the registers


def make_int4_tile() -> Any:
    """tile(rows, x, x_stride, sums, sums_stride, weights, groups, out, out_stride): out = x W.

    x: 1 to INT4_ROWS bfloat16 rows; sums: of each row's groups, float32; weights: `groups`
    records. A weight is scale * nibble + minimum, so that a group adds scale * (x . nibbles) +
    minimum * sum(x). A nibble becomes a bfloat16 by one table look-up (VPERMW).
    """

    def tile(b: Any, rows: int, a: Any) -> None:
        x, x_stride, sums, sums_stride, weights, groups, out, out_stride = a
        starts, sum_starts = _rows(b, x, x_stride, rows), _rows(b, sums, sums_stride, rows)

        def body(i: Any, accs: list[list[Any]]) -> list[list[Any]]:
            record = _offset(b, weights, i, INT4_RECORD)
            inputs = [_offset(b, start, i, 2 * INT4_GROUP) for start in starts]
            parts = _int4_group(b, b.add(record, ir.Constant(I64, 4 * TILE_OUTPUTS)), inputs)
            totals = [_f32_row(b, _offset(b, start, i, 4)) for start in sum_starts]
            return _scale_group(b, accs, parts, totals, record)

        accs = _loop(b, groups, _zeros(rows, 4), body)
        _store_tile(b, accs, out, out_stride)

    return _by_rows(INT4_ROWS, 8, tile)


def _int4_group(b: Any, nibbles: Any, inputs: list[Any]) -> list[list[Any]]:
    """x . nibbles over one group."""
    parts = _zeros(len(inputs), 4)
    table = ir.Constant(WORDS, [_bfloat16_bits(i % 16) for i in range(32)])
    for step in range(_INT4_STEPS):
        lanes = [
            load(b, b.add(nibbles, ir.Constant(I64, (step * 4 + v) * 64)), WORDS, 4)
            for v in range(4)
        ]
        for shift in range(4):
            row = [
                _bf16_row(b, b.add(at, ir.Constant(I64, step * 16 + shift * 4))) for at in inputs
            ]
            w = [_look_up(b, table, lane, 4 * shift) for lane in lanes]
            parts = _accumulate(b, BF16, parts, row, w)
    return parts


def _look_up(b: Any, table: Any, lanes: Any, shift: int) -> Any:
    """The instruction looks at five bits of each lane, and the table repeats after sixteen."""
    index = b.lshr(lanes, ir.Constant(WORDS, [shift] * 32)) if shift else lanes
    return b.bitcast(call(b, "llvm.x86.avx512.permvar.hi.512", WORDS, table, index), BF16_PAIRS)


def _bfloat16_bits(value: int) -> int:
    """The upper half of a float32; exact for small whole numbers."""
    bits: int = struct.unpack("<I", struct.pack("<f", float(value)))[0]
    return bits >> 16


def _scale_group(
    b: Any, accs: list[list[Any]], parts: list[list[Any]], totals: list[Any], record: Any
) -> list[list[Any]]:
    result = [list(line) for line in accs]
    for v in range(4):
        scale, minimum = (
            b.fpext(load(b, b.add(record, ir.Constant(I64, first + 32 * v)), HALVES, 2), FLOATS)
            for first in (0, 2 * TILE_OUTPUTS)
        )
        for r, total in enumerate(totals):
            acc = call(b, "llvm.fma.v16f32", FLOATS, scale, parts[r][v], accs[r][v])
            result[r][v] = call(b, "llvm.fma.v16f32", FLOATS, minimum, total, acc)
    return result


def _accumulate(
    b: Any, kind: Kind, accs: list[list[Any]], rows: list[Any], weights: list[Any]
) -> list[list[Any]]:
    return [
        [kind.accumulate(b, acc, row, w) for acc, w in zip(line, weights, strict=True)]
        for line, row in zip(accs, rows, strict=True)
    ]


def _loop(b: Any, count: Any, initial: Any, body: Callable[[Any, Any], Any]) -> Any:
    """body(i, values) -> values, count times (at least once); the values are registers."""
    before = b.block
    loop, end = b.append_basic_block("tile"), b.append_basic_block("tile.end")
    b.branch(loop)
    b.position_at_end(loop)
    i = b.phi(I64)
    i.add_incoming(ir.Constant(I64, 0), before)
    phis = [[b.phi(value.type) for value in line] for line in initial]
    after = body(i, phis)
    following = b.add(i, ir.Constant(I64, 1))
    i.add_incoming(following, b.block)
    for phi_line, first_line, next_line in zip(phis, initial, after, strict=True):
        for phi, first, value in zip(phi_line, first_line, next_line, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(value, b.block)
    b.cbranch(b.icmp_signed("<", following, count), loop, end)
    b.position_at_end(end)
    return after


def _store_tile(b: Any, accs: list[list[Any]], out: Any, out_stride: Any) -> None:
    for r, line in enumerate(accs):
        start = _offset(b, out, out_stride, r)
        for v, acc in enumerate(line):
            store(b, b.add(start, ir.Constant(I64, v * 4 * LANES)), acc, 4)
