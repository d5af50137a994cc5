"""The attention kernels as their launchers compile them: an 8B model's heads, and narrow ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.attention.tiles import (
    BYTES_FOR_FP8,
    Tiles,
    attention_constants,
    decode_tiles,
    prefill_tiles,
    reduce_constants,
    reduce_options,
)
from kernels.checking.aot_spec import AotSpec

ARCHS = ("sm_80", "sm_90", "sm_100", "gfx942")
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
Heads = tuple[str, str, int, int, int]
_BLOCK_SIZE = 16
_PARTS = 40
_BF16 = ("bf16", "bf16", 32, 8, 128)  # dtype of the queries, of the cache, heads, KV heads, dim
_FP8 = ("bf16", "fp8", 32, 8, 128)
_FP32 = ("fp32", "fp32", 32, 8, 128)
_SPLIT = (_BF16, _FP8, _FP32, ("fp16", "fp16", 7, 1, 80))
_WHOLE = (_BF16,)
_PREFILL = (_BF16, _FP8, _FP32, ("bf16", "bf16", 9, 3, 64), ("bf16", "bf16", 16, 8, 256))
_MAIN = (_BF16, _FP8)
_OTHERS_ON = ("sm_90", "gfx942")  # the other variants: on all four they take a minute more
_SHARED = ("q", "cache", "block_tables", "contexts", "out")
_INTEGERS = {"q_stride": "i32", "head_stride": "i32", "max_blocks": "i32"}


def specs() -> list[AotSpec]:
    """Tile sizes follow the target's shared memory, so each has specifications of its own."""
    return [spec for arch in ARCHS for spec in _specs_of(arch)]


def _specs_of(arch: str) -> list[AotSpec]:
    def wanted(variants: tuple[Heads, ...]) -> list[Heads]:
        return [what for what in variants if what in _MAIN or arch in _OTHERS_ON]

    return [
        *(_decode("split", arch, *what) for what in wanted(_SPLIT)),
        *(_decode("whole", arch, *what) for what in _WHOLE),
        _reduce(arch),
        *(_prefill(arch, *what) for what in wanted(_PREFILL)),
    ]


def _decode(
    how: str, arch: str, q: str, kv: str, heads: int, kv_heads: int, dim: int
) -> AotSpec:  # fmt: skip
    tiles = decode_tiles(arch, ELEMENT_BYTES[q], dim, heads // kv_heads)
    constants = attention_constants(heads, kv_heads, dim, _BLOCK_SIZE, tiles)
    return _spec(
        f"paged_decode {how} {_label(q, kv, heads, kv_heads, dim)}",
        "decode_kernel",
        arch,
        {
            **_pointers(arch, q, kv),
            "parts": "*fp32",
            "peaks": "*fp32",
            **_INTEGERS,
            "least": "i32",
            "scale": "fp32",
        },
        {**constants, "SPLIT": how == "split"},
        tiles,
        tensor_core=q != "fp32",
        buffered=True,
    )


def _prefill(arch: str, q: str, kv: str, heads: int, kv_heads: int, dim: int) -> AotSpec:
    tiles = prefill_tiles(arch, ELEMENT_BYTES[q], dim, heads // kv_heads)
    return _spec(
        f"paged_prefill {_label(q, kv, heads, kv_heads, dim)}",
        "prefill_kernel",
        arch,
        {
            **_pointers(arch, q, kv),
            "starts": "*i32",
            "sequences": "i32",
            **_INTEGERS,
            "scale": "fp32",
        },
        attention_constants(heads, kv_heads, dim, _BLOCK_SIZE, tiles),
        tiles,
        tensor_core=q != "fp32",
        matmul=q != "fp32",
        buffered=tiles.stages > 2,
    )


def _reduce(arch: str) -> AotSpec:
    tiles = decode_tiles(arch, 2, 128, 4)
    return AotSpec(
        name=f"paged_decode reduce bf16 32 x 128, {_PARTS} parts",
        op="paged_decode",
        fn=lambda: _kernel("reduce_kernel"),
        signature={
            "parts": "*fp32",
            "peaks": "*fp32",
            "contexts": "*i32",
            "out": "*bf16",
            "splits": "i32",
            "least": "i32",
        },
        constexprs=reduce_constants(32, 128, tiles, _PARTS),
        options=reduce_options(_PARTS),
        divisible=("parts", "peaks", "contexts", "out"),
        wide_loads=True,
        archs=(arch,),
    )


def _spec(
    name: str, kernel: str, arch: str, signature: Mapping[str, str],
    constants: Mapping[str, Any], tiles: Tiles, **wanted: bool,
) -> AotSpec:  # fmt: skip
    pointers = tuple(key for key, kind in signature.items() if kind.startswith("*"))
    return AotSpec(
        name=name,
        op=name.split()[0],
        fn=lambda: _kernel(kernel),
        signature=signature,
        constexprs=constants,
        options=tiles.options(),
        divisible=(*pointers, "q_stride", "head_stride"),
        wide_loads=True,
        archs=(arch,),
        **wanted,
    )


def _pointers(arch: str, q: str, kv: str) -> dict[str, str]:
    kinds = dict.fromkeys(_SHARED, f"*{q}")
    e4m3 = "*u8" if arch in BYTES_FOR_FP8 else "*fp8e4nv"
    cache = e4m3 if kv == "fp8" else f"*{kv}"
    return {**kinds, "cache": cache, "block_tables": "*i32", "contexts": "*i32"}


def _label(q: str, kv: str, heads: int, kv_heads: int, dim: int) -> str:
    return f"{q}{f', {kv} KV' if kv != q else ''}, {heads}/{kv_heads} x {dim}"


def _kernel(name: str) -> Any:
    from kernels.attention import triton_impl

    return getattr(triton_impl, name)
