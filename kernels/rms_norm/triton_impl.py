"""RMSNorm on a GPU, with and without the residual sum (Zhang and Sennrich 2019, equation 4).

One program holds whole rows in registers, so that a row is read once: the mean square needs all of
it before the first output can be written. Statistics are in fp32 whatever the dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.pointwise_tiles import RowTile, whole_rows
from kernels.rms_norm.contract import CONTRACTS
from kernels.targets import arch_of


@triton.jit
def rms_norm_kernel(x, weight, out, rows, dim, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """x, out: [rows, dim]; weight: [dim]. ROWS rows a program, COLUMNS >= dim."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * dim + column[None, :]
    inside = (row < rows)[:, None] & (column < dim)[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + column, mask=column < dim, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 1) / dim + eps)
    normed = value * scale[:, None] * gain[None, :]
    tl.store(out + at, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def add_rms_norm_kernel(
    x, residual, weight, out, rows, dim, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """residual += x, then its norm. The norm is of the sum as it is stored, so that the fused op
    gives what the two separate ones give."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * dim + column[None, :]
    inside = (row < rows)[:, None] & (column < dim)[None, :]
    added = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    stored = (before + added).to(residual.dtype.element_ty)
    tl.store(residual + at, stored, mask=inside)
    value = stored.to(tl.float32)
    gain = tl.load(weight + column, mask=column < dim, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 1) / dim + eps)
    normed = value * scale[:, None] * gain[None, :]
    tl.store(out + at, normed.to(out.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """x: [rows, dim], weight: [dim] -> [rows, dim] in x's dtype. Raises ContractError."""
    CONTRACTS["rms_norm"].check(x=x, weight=weight, out=out)
    out = torch.empty_like(x) if out is None else out
    _launch(rms_norm_kernel, x, (x, weight, out), eps)
    return out


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, out: Tensor | None = None
) -> Tensor:
    """residual += x in place; then its norm. All [rows, dim] of one dtype; weight: [dim].

    Raises ContractError.
    """
    CONTRACTS["add_rms_norm"].check(x=x, residual=residual, weight=weight, out=out)
    out = torch.empty_like(x) if out is None else out
    _launch(add_rms_norm_kernel, x, (x, residual, weight, out), eps)
    return out


def _launch(kernel: Any, x: Tensor, tensors: tuple[Tensor, ...], eps: float) -> None:
    rows, dim = x.shape
    tile: RowTile = whole_rows(dim, arch_of(x.device))
    if rows:
        grid = (triton.cdiv(rows, tile.rows),)
        kernel[grid](
            *tensors, rows, dim, eps, ROWS=tile.rows, COLUMNS=tile.columns, num_warps=tile.warps
        )
