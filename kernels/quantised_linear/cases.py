"""Weight-only matmuls of odd sizes: one row to sixteen, outputs that fill no tile, split sums."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.checking.case import Case, Values
from kernels.quantised_linear.reference import GROUP, pack_int4, quantised_linear

INT8 = ((1, 33, 100), (7, 576, 576), (16, 33, 1536))  # rows, n, k
INT4 = ((1, 33, 96), (7, 576, 576), (16, 33, 2080))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def cases() -> list[Case]:
    return [
        _case(dtype, packed, *shape)
        for packed, shapes in ((False, INT8), (True, INT4))
        for dtype in DTYPES
        for shape in shapes
    ]


def _case(dtype: torch.dtype, packed: bool, rows: int, n: int, k: int) -> Case:
    def inputs(generator: torch.Generator, device: torch.device) -> Values:
        x = torch.randn(rows, k, generator=generator, device=device).to(dtype)
        return {"x": x, **(_int4 if packed else _int8)(n, k, generator, device)}

    def outputs(values: Values) -> Values:
        return {"out": values["x"].new_full((rows, n), float("nan"))}

    shape = f"{rows} x {k} x {n}, {'int4' if packed else 'int8'}"
    return Case(
        "quantised_linear",
        dtype,
        shape,
        k,
        inputs,
        outputs,
        _run,
        _reference,
        rounded_terms=packed and dtype != torch.float32,
    )


def _int8(n: int, k: int, generator: torch.Generator, device: torch.device) -> Values:
    scales = torch.rand(n, generator=generator, device=device) * 0.01 + 0.001
    return {
        "weight": _levels(-127, 128, (n, k), generator, device).to(torch.int8),
        "scales": scales,
    }


def _int4(n: int, k: int, generator: torch.Generator, device: torch.device) -> Values:
    shape = (n, k // GROUP)
    scales = torch.rand(*shape, generator=generator, device=device) * 0.1 + 0.01
    return {
        "weight": pack_int4(_levels(0, 16, (n, k), generator, device).to(torch.uint8)),
        "scales": scales.half(),
        "minimums": (-8 * scales).half(),
    }


def _levels(
    low: int, high: int, shape: tuple[int, int], generator: torch.Generator, device: torch.device
) -> Tensor:
    return torch.randint(low, high, shape, generator=generator, device=device)


def _run(values: Values, out: Values) -> None:
    from kernels.quantised_linear.triton_impl import quantised_linear as kernel

    weights = (values["weight"], values["scales"], values.get("minimums"))
    kernel(values["x"], *weights, out["out"])


def _reference(values: Values, initial: Values) -> Values:
    weights = (values["weight"], values["scales"], values.get("minimums"))
    return {"out": quantised_linear(values["x"], *weights)}
