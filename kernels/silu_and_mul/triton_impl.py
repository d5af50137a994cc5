"""SwiGLU's gate on a GPU: silu(gate) * up (Shazeer 2020, equation 6), one pass, math in fp32."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.pointwise_tiles import TILE, warps_for
from kernels.silu_and_mul.contract import CONTRACTS
from kernels.targets import arch_of


@triton.jit
def silu_and_mul_kernel(gate_up, out, dim, COLUMNS: tl.constexpr):
    """gate_up: [rows, 2 * dim], gate first; out: [rows, dim]. A program: COLUMNS of one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < dim
    at = gate_up + row * 2 * dim + column
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + dim, mask=inside, other=0.0).to(tl.float32)
    product = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * dim + column, product.to(out.dtype.element_ty), mask=inside)


def silu_and_mul(gate_up: Tensor, out: Tensor | None = None) -> Tensor:
    """gate_up: [rows, 2 * dim], gate first -> [rows, dim] in its dtype. Raises ContractError."""
    sizes = CONTRACTS["silu_and_mul"].check(gate_up=gate_up, out=out)
    rows, dim = sizes["rows"], sizes["dim"]
    out = gate_up.new_empty(rows, dim) if out is None else out
    if rows:
        warps = warps_for(TILE, arch_of(out.device))
        grid = (rows, triton.cdiv(dim, TILE))
        silu_and_mul_kernel[grid](gate_up, out, dim, COLUMNS=TILE, num_warps=warps)
    return out
