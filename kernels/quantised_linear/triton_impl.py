"""Weight-only int8 and int4 matmul for few rows on a GPU: weights become floats in registers.

What is waited for is the stream of weights, so it is read once, three steps ahead, and by as many
programs as keep the memory busy: where n is small the inner dimension is split, and a second kernel
adds the parts in one order. The math is on tensor cores with the outputs as rows of the
instruction, since it takes 64 of them and x has at most 16 rows. int8 is exact in bf16 and fp16 and
is scaled after the sum; int4 has a scale for each 32 inputs and is scaled before it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.quantised_linear.contract import CONTRACTS
from kernels.quantised_linear.reference import GROUP
from kernels.quantised_linear.tiles import COLUMNS, OUTPUTS, ROWS, STAGES, WARPS, WIDTH, split

_HALF = tl.constexpr(GROUP // 2)  # bytes of a group


@triton.jit
def multiply(a, b, sums):
    """sums + a b with float32 accumulation; b in a's dtype, no tf32."""
    return tl.dot(a, b, sums, input_precision="ieee")


@triton.jit
def store_sums(out, scales, sums, output, row, rows, n, part, SCALED: tl.constexpr):
    """sums: [outputs, rows]; out: [rows, n], or [parts, rows, n] in float32."""
    inside = (output < n)[:, None] & (row < rows)[None, :]
    if SCALED:
        sums *= tl.load(scales + output, mask=output < n, other=0.0).to(tl.float32)[:, None]
    at = (part * rows + row)[None, :].to(tl.int64) * n + output[:, None]
    tl.store(out + at, sums.to(out.dtype.element_ty), mask=inside)


@triton.jit
def int8_kernel(
    x, weight, scales, out, rows, n, k, steps,
    OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A program: some outputs over steps * WIDTH inputs. x: [rows, k], weight: [n, k]."""
    part = tl.program_id(1)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    row = tl.arange(0, ROWS)
    line, given = weight + output.to(tl.int64)[:, None] * k, (row < rows)[None, :]
    sums = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for step in range(steps):
        inner = (part * steps + step) * WIDTH + tl.arange(0, WIDTH)
        inside = inner < k
        q = tl.load(line + inner[None, :], mask=(output < n)[:, None] & inside[None, :], other=0)
        v = tl.load(x + row[None, :] * k + inner[:, None], mask=given & inside[:, None], other=0.0)
        sums = multiply(q.to(x.dtype.element_ty), v, sums)
    store_sums(out, scales, sums, output, row, rows, n, part, True)


@triton.jit
def nibble(words, scale, minimum, PLACE: tl.constexpr, like):
    """Weights of one of the eight inputs of each word: level * scale + minimum, rounded.

    A level becomes bits 19 to 22 of a float32 between 1 and 2, which is 1 + level / 16: no
    conversion, the instruction that costs most. So scale and minimum are of that number.
    """
    moved = words << (19 - 4 * PLACE) if PLACE < 5 else words >> (4 * PLACE - 19)
    one = ((moved & 0x780000) | 0x3F800000).to(tl.float32, bitcast=True)
    return (one * scale + minimum).to(like)


@triton.jit
def halves(v):
    """[rows, 2 * m] -> the even and the odd columns."""
    return tl.split(tl.reshape(v, (v.shape[0], v.shape[1] // 2, 2)))


@triton.jit
def spread(v, WORDS: tl.constexpr):
    """[outputs, groups] -> [outputs, WORDS], each group's value for its four words."""
    wide = tl.broadcast_to(v[:, :, None], (v.shape[0], v.shape[1], WORDS // v.shape[1]))
    return tl.reshape(wide, (v.shape[0], WORDS))


@triton.jit
def int4_kernel(
    x, weight, scales, minimums, out, rows, n, k, steps,
    OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """As int8_kernel; weight: int32 [n, k / 8], scales and minimums: [n, k / 32]. A word holds
    eight inputs, lowest bits first, and each of the eight is multiplied with its own slice of x:
    words then lie in registers as the matrix instruction wants them, and nothing is moved."""
    part = tl.program_id(1)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    row, wanted = tl.arange(0, ROWS), (output < n)[:, None]
    WORDS: tl.constexpr = WIDTH // 8
    GROUPS: tl.constexpr = WORDS // 4
    line = weight + output.to(tl.int64)[:, None] * (k // 8)
    heads = output.to(tl.int64)[:, None] * (k // 32)
    sums = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for step in range(steps):
        first = (part * steps + step) * WIDTH
        word, group = first // 8 + tl.arange(0, WORDS), first // 32 + tl.arange(0, GROUPS)
        q = tl.load(line + word[None, :], mask=wanted & (word < k // 8)[None, :], other=0)
        known = wanted & (group < k // 32)[None, :]
        scale = tl.load(scales + heads + group[None, :], mask=known, other=0.0).to(tl.float32) * 16
        least = tl.load(minimums + heads + group[None, :], mask=known, other=0.0).to(tl.float32)
        inner = first + tl.arange(0, WIDTH)
        given = (row < rows)[:, None] & (inner < k)[None, :]
        v = tl.load(x + row[:, None] * k + inner[None, :], mask=given, other=0.0)
        v04, v15 = tl.split(tl.reshape(v, (ROWS, WIDTH // 2, 2)))
        a, b = spread(scale, WORDS), spread(least - scale, WORDS)
        v0, v2 = halves(v04)
        v1, v3 = halves(v15)
        v0, v4 = halves(v0)
        v2, v6 = halves(v2)
        v1, v5 = halves(v1)
        v3, v7 = halves(v3)
        like: tl.constexpr = x.dtype.element_ty
        sums = multiply(nibble(q, a, b, 0, like), tl.trans(v0), sums)
        sums = multiply(nibble(q, a, b, 1, like), tl.trans(v1), sums)
        sums = multiply(nibble(q, a, b, 2, like), tl.trans(v2), sums)
        sums = multiply(nibble(q, a, b, 3, like), tl.trans(v3), sums)
        sums = multiply(nibble(q, a, b, 4, like), tl.trans(v4), sums)
        sums = multiply(nibble(q, a, b, 5, like), tl.trans(v5), sums)
        sums = multiply(nibble(q, a, b, 6, like), tl.trans(v6), sums)
        sums = multiply(nibble(q, a, b, 7, like), tl.trans(v7), sums)
    store_sums(out, scales, sums, output, row, rows, n, part, False)


@triton.jit
def add_parts_kernel(partial, out, size, parts, COLUMNS: tl.constexpr):
    """partial: float32 [parts, size] -> out [size]: the sum, first part first."""
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros([COLUMNS], tl.float32)
    for part in range(parts):
        sums += tl.load(partial + at.to(tl.int64) + part * size, mask=at < size, other=0.0)
    tl.store(out + at, sums.to(out.dtype.element_ty), mask=at < size)


def quantised_linear(
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    minimums: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """x: [rows, k], at most 16 rows -> [rows, n] in x's dtype.

    int8: weight int8 [n, k], scales [n]: weights are q * scale. int4: weight uint8 [n, k / 2], low
    nibble first, scales and minimums [n, k / 32]: q * scale + minimum, as GGUF's Q4_1. Raises
    ContractError.
    """
    CONTRACTS["quantised_linear"].check(
        x=x, weight=weight, scales=scales, minimums=minimums, out=out
    )
    out = x.new_empty(x.shape[0], weight.shape[0]) if out is None else out
    if x.shape[0]:
        _launch(x, weight, scales, minimums, out)
    return out


def _launch(
    x: Tensor, weight: Tensor, scales: Tensor, minimums: Tensor | None, out: Tensor
) -> None:
    (rows, k), n = x.shape, out.shape[1]
    plan = split(n, k)
    to = out if plan.parts == 1 else scales.new_empty(plan.parts, rows, n, dtype=torch.float32)
    grid = (triton.cdiv(n, OUTPUTS), plan.parts)
    size = {"OUTPUTS": OUTPUTS, "WIDTH": WIDTH, "ROWS": ROWS}
    how = {**size, "num_warps": WARPS, "num_stages": STAGES}
    if minimums is None:
        int8_kernel[grid](x, weight, scales, to, rows, n, k, plan.steps, **how)
    else:
        words = weight.view(torch.int32)
        int4_kernel[grid](x, words, scales, minimums, to, rows, n, k, plan.steps, **how)
    if plan.parts > 1:
        adders = (triton.cdiv(rows * n, COLUMNS),)
        add_parts_kernel[adders](to, out, rows * n, plan.parts, COLUMNS=COLUMNS, num_warps=WARPS)
