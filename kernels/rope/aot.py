"""Rotation and cache write as their launcher compiles them, for heads of 64 and 128."""

from __future__ import annotations

from typing import Any

from kernels.checking.aot_spec import AotSpec
from kernels.pointwise_tiles import WARP_SIZES, power_of_two, warps_for
from kernels.rope.tiles import heads_of_program

_WANTED = (("bf16", "bf16", 128), ("fp32", "fp32", 128), ("bf16", "u8", 128), ("bf16", "bf16", 64))


def specs() -> list[AotSpec]:
    return [_spec(*what, archs) for what in _WANTED for archs in WARP_SIZES]


def _spec(element: str, stored: str, dim: int, archs: tuple[str, ...]) -> AotSpec:
    heads, columns = heads_of_program(dim), power_of_two(dim // 2)
    kind = ", cache fp8" if stored == "u8" else ""
    return AotSpec(
        name=f"rope_and_cache {element} {dim}{kind}",
        op="rope_and_cache",
        fn=_kernel,
        signature={
            "qkv": f"*{element}",
            "positions": "*i32",
            "cos": "*fp32",
            "sin": "*fp32",
            "slots": "*i32",
            "cache": f"*{stored}",
            "heads": "i32",
            "kv_heads": "i32",
        },
        constexprs={"HEADS": heads, "HALF": dim // 2, "COLUMNS": columns},
        options={"num_warps": warps_for(heads * columns, archs[0])},
        divisible=("qkv", "positions", "cos", "sin", "slots", "cache"),
        wide_loads=True,
        archs=archs,
    )


def _kernel() -> Any:
    from kernels.rope.triton_impl import rope_and_cache_kernel

    return rope_and_cache_kernel
