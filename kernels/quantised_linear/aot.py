"""The weight-only matmuls as their launcher compiles them for an 8B model's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.checking.aot_spec import AotSpec
from kernels.quantised_linear.tiles import COLUMNS, OUTPUTS, ROWS, STAGES, WARPS, WIDTH

_SIZES = {"rows": "i32", "n": "i32", "k": "i32", "steps": "i32"}


def specs() -> list[AotSpec]:
    return [
        _matmul("int8", "bf16", "fp32"),
        _matmul("int4", "bf16", "fp16"),
        _add_parts(),
    ]


def _matmul(kind: str, element: str, scale: str) -> AotSpec:
    packed = kind == "int4"
    tensors = {
        "x": f"*{element}",
        "weight": "*i32" if packed else "*i8",
        "scales": f"*{scale}",
        **({"minimums": f"*{scale}"} if packed else {}),
        "out": "*fp32",
    }
    return AotSpec(
        name=f"quantised_linear {kind} {element}",
        op="quantised_linear",
        fn=_kernel(kind),
        signature={**tensors, **_SIZES},
        constexprs={"OUTPUTS": OUTPUTS, "WIDTH": WIDTH, "ROWS": ROWS},
        options={"num_warps": WARPS, "num_stages": STAGES},
        divisible=(*tensors, "n", "k"),
        tensor_core=True,
        wide_loads=True,
        buffered=True,
    )


def _add_parts() -> AotSpec:
    return AotSpec(
        name="quantised_linear add parts",
        op="quantised_linear",
        fn=_kernel("add_parts"),
        signature={"partial": "*fp32", "out": "*bf16", "size": "i32", "parts": "i32"},
        constexprs={"COLUMNS": COLUMNS},
        options={"num_warps": WARPS},
        divisible=("partial", "out", "size"),
        wide_loads=True,
    )


def _kernel(name: str) -> Callable[[], Any]:
    def imported() -> Any:
        from kernels.quantised_linear import triton_impl

        return getattr(triton_impl, f"{name}_kernel")

    return imported
