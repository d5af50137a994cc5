"""The gate as its launcher compiles it."""

from __future__ import annotations

from typing import Any

from kernels.checking.aot_spec import AotSpec
from kernels.pointwise_tiles import TILE, WARP_SIZES, warps_for


def specs() -> list[AotSpec]:
    return [_spec(element, archs) for element in ("bf16", "fp32") for archs in WARP_SIZES]


def _spec(element: str, archs: tuple[str, ...]) -> AotSpec:
    return AotSpec(
        name=f"silu_and_mul {element}",
        op="silu_and_mul",
        fn=_kernel,
        signature={"gate_up": f"*{element}", "out": f"*{element}", "dim": "i32"},
        constexprs={"COLUMNS": TILE},
        options={"num_warps": warps_for(TILE, archs[0])},
        divisible=("gate_up", "out", "dim"),
        wide_loads=True,
        archs=archs,
    )


def _kernel() -> Any:
    from kernels.silu_and_mul.triton_impl import silu_and_mul_kernel

    return silu_and_mul_kernel
