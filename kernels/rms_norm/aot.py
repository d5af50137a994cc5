"""The norms as their launcher compiles them for an 8B model's rows and for narrow ones."""

from __future__ import annotations

from typing import Any

from kernels.checking.aot_spec import AotSpec
from kernels.pointwise_tiles import WARP_SIZES, whole_rows

_POINTERS = {"rms_norm": ("x", "weight", "out"), "add_rms_norm": ("x", "residual", "weight", "out")}
_WANTED = (
    ("rms_norm", "bf16", 576),
    ("rms_norm", "bf16", 4096),
    ("add_rms_norm", "bf16", 4096),
    ("add_rms_norm", "fp32", 4096),
    ("add_rms_norm", "bf16", 16384),
)


def specs() -> list[AotSpec]:
    return [_spec(*what, archs) for what in _WANTED for archs in WARP_SIZES]


def _spec(op: str, element: str, dim: int, archs: tuple[str, ...]) -> AotSpec:
    tile, pointers = whole_rows(dim, archs[0]), _POINTERS[op]
    return AotSpec(
        name=f"{op} {element} {dim}",
        op=op,
        fn=lambda: _kernel(op),
        signature={
            **dict.fromkeys(pointers, f"*{element}"),
            "rows": "i32",
            "dim": "i32",
            "eps": "fp32",
        },
        constexprs={"ROWS": tile.rows, "COLUMNS": tile.columns},
        options={"num_warps": tile.warps},
        divisible=(*pointers, "dim"),
        wide_loads=True,
        archs=archs,
    )


def _kernel(op: str) -> Any:
    from kernels.rms_norm import triton_impl

    return getattr(triton_impl, f"{op}_kernel")
