"""The gate on odd widths, among them one that needs more than one program a row."""

from __future__ import annotations

import torch

from kernels.checking.case import Case, Values
from kernels.silu_and_mul.reference import silu_and_mul

SHAPES = ((1, 1536), (7, 1536), (3, 100), (2, 33))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def cases() -> list[Case]:
    return [_case(dtype, rows, dim) for dtype in DTYPES for rows, dim in SHAPES]


def _case(dtype: torch.dtype, rows: int, dim: int) -> Case:
    def inputs(generator: torch.Generator, device: torch.device) -> Values:
        x = torch.randn(rows, 2 * dim, generator=generator, device=device)
        return {"gate_up": (4 * x).to(dtype)}

    def outputs(values: Values) -> Values:
        return {"out": torch.full_like(values["gate_up"][:, :dim].contiguous(), float("nan"))}

    return Case("silu_and_mul", dtype, f"{rows} x {dim}", 1, inputs, outputs, _run, _reference)


def _run(values: Values, out: Values) -> None:
    from kernels.silu_and_mul.triton_impl import silu_and_mul as kernel

    kernel(values["gate_up"], out["out"])


def _reference(values: Values, initial: Values) -> Values:
    return {"out": silu_and_mul(values["gate_up"])}
