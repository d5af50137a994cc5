"""Sampling's kernels as their launcher compiles them, for a vocabulary of 128,256."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.checking.aot_spec import AotSpec
from kernels.pointwise_tiles import power_of_two
from kernels.sampling.tiles import CHUNK, WARPS, search

_CHUNKS = power_of_two(-(-128_256 // CHUNK))
_COMMON = {"stride": "i32", "vocab": "i32"}
_FOUND = {"peaks": "*fp32", "masses": "*fp32", "floors": "*i32"}


def specs() -> list[AotSpec]:
    return [spec for element in ("bf16", "fp32") for spec in _of(element)]


def _of(element: str) -> list[AotSpec]:
    plan = search(16 if element == "bf16" else 32, "top_p")
    size = {"CHUNK": CHUNK, "CHUNKS": _CHUNKS}
    logits = {"logits": f"*{element}", "temperature": "*fp32", "top_p": "*fp32"}
    narrow = {"ROUND": 1, "LOWEST": plan.lowest, "WIDTH": plan.widths[1]}
    seeds = {"seeds": "*i64", "steps": "*i32", "places": "*i32", "out": "*i64"}
    return [
        _spec(
            "largest",
            element,
            {"logits": f"*{element}", "peaks": "*fp32", "places": "*i32", **_COMMON},
            {"CHUNK": CHUNK},
        ),
        _spec("narrow", element, {**logits, **_FOUND, **_COMMON}, {**size, **narrow}),
        _spec(
            "draw",
            element,
            {**logits, **seeds, **_FOUND, **_COMMON, "chunks": "i32"},
            {**size, "ROUNDS": len(plan.widths), "FILTERED": True},
        ),
    ]


def _spec(
    part: str, element: str, signature: dict[str, str], constexprs: dict[str, Any]
) -> AotSpec:
    pointers = tuple(name for name, kind in signature.items() if kind.startswith("*"))
    return AotSpec(
        name=f"sample {part} {element}",
        op="sample",
        fn=_kernel(part),
        signature=signature,
        constexprs=constexprs,
        options={"num_warps": WARPS},
        divisible=(*pointers, "stride", "vocab"),
        wide_loads=True,
        archs=() if element == "bf16" else ("sm_90", "gfx942"),
    )


def _kernel(part: str) -> Callable[[], Any]:
    def imported() -> Any:
        from kernels.sampling import triton_impl

        return getattr(triton_impl, f"{part}_kernel")

    return imported
