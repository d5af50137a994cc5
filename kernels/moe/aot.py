"""The experts' kernels as their launchers compile them: 6 of 256 experts, and 2 of 8.

The router is asked for no 128-bit loads: a row of 256 logits is 512 bytes, 8 for each of 64 lanes.
"""

from __future__ import annotations

from typing import Any

from kernels.checking.aot_spec import AotSpec
from kernels.moe.tiles import SORT_CHUNK, Tiles, matmul_tiles, router_options
from kernels.pointwise_tiles import power_of_two

ARCHS = ("sm_80", "sm_90", "sm_100", "gfx942")
_FP32_ON = ("sm_90", "gfx942")
_ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
# dtype, rows, k, experts: a decode's few rows per expert, a prompt's many, and both in between
_MATMULS = (
    ("bf16", 64, 6, 256),
    ("bf16", 1024, 6, 256),
    ("bf16", 8192, 2, 8),
    ("fp32", 64, 2, 8),
)


def specs() -> list[AotSpec]:
    matmuls = [
        _matmul(arch, *what)
        for arch in ARCHS
        for what in _MATMULS
        if what[0] != "fp32" or arch in _FP32_ON
    ]
    return [_router("sqrt_softplus"), _router("softmax"), _sort(), *matmuls]


def _router(scoring: str) -> AotSpec:
    experts, k = 256, 6
    width = power_of_two(experts)
    return AotSpec(
        name=f"router {scoring} bf16 {k} of {experts}",
        op="router",
        fn=lambda: _kernel("router_kernel"),
        signature={
            "logits": "*bf16",
            "topk_weights": "*fp32",
            "topk_indices": "*i64",
            "token_expert_indices": "*i32",
            "input_tokens": "*i64",
            "hash_indices_table": "*i64",
            "rows": "i32",
            "experts": "i32",
        },
        constexprs={
            "K": k,
            "SLOTS": power_of_two(k),
            "WIDTH": width,
            "SQRT_SOFTPLUS": scoring == "sqrt_softplus",
            "RENORMALISE": True,
            "HASHED": False,
        },
        options=router_options(width),
        divisible=("logits", "topk_weights", "topk_indices", "token_expert_indices", "experts"),
    )


def _sort() -> AotSpec:
    return AotSpec(
        name="grouped_matmul order by expert",
        op="grouped_matmul",
        fn=lambda: _kernel("sort_kernel"),
        signature={
            "indices": "*i64",
            "order": "*i32",
            "starts": "*i32",
            "places": "i32",
            "experts": "i32",
        },
        constexprs={"CHUNK": SORT_CHUNK},
        options={"num_warps": 4},
        divisible=("indices", "order", "starts", "experts"),
    )


def _matmul(arch: str, element: str, rows: int, k: int, experts: int) -> AotSpec:
    tiles = matmul_tiles(arch, _ELEMENT_BYTES[element], rows * k, experts)
    return AotSpec(
        name=f"grouped_matmul {element}, {rows} rows x {k} of {experts}",
        op="grouped_matmul",
        fn=lambda: _kernel("grouped_kernel"),
        signature={
            **dict.fromkeys(("x", "weights", "out"), f"*{element}"),
            "order": "*i32",
            "starts": "*i32",
            "topk_weights": "*fp32",
            **dict.fromkeys(("experts", "inner", "outer"), "i32"),
        },
        constexprs=_matmul_constants(k, experts, tiles),
        options=tiles.options(),
        divisible=("x", "weights", "order", "starts", "topk_weights", "out", "inner", "outer"),
        tensor_core=element != "fp32",
        matmul=tiles.rows >= 64,
        wide_loads=True,
        buffered=tiles.stages > 2,
        archs=(arch,),
    )


def _matmul_constants(k: int, experts: int, tiles: Tiles) -> dict[str, Any]:
    constants = {"SHARED_BY": k, "SCALED": False, "WIDTH": power_of_two(experts)}
    return {**constants, **tiles.constants()}


def _kernel(name: str) -> Any:
    from kernels.moe import triton_impl

    return getattr(triton_impl, name)
