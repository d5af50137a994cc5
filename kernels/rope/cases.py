"""Rotation and cache write: grouped heads, odd head sizes, slots that are not written, fp8."""

from __future__ import annotations

import torch

from kernels.checking.case import Case, Values
from kernels.rope.reference import rope_and_cache, rope_tables

FP8 = torch.float8_e4m3fn
HALF_TYPES = (torch.float16, torch.bfloat16)
DTYPES = (torch.float32, *HALF_TYPES)
SHAPES = ((1, 9, 3, 64), (7, 6, 2, 64), (5, 4, 1, 10), (3, 32, 8, 128))  # rows, heads, kv, dim
POSITIONS, SLOTS = 300, 40


def cases() -> list[Case]:
    same = [_case(dtype, dtype, shape) for dtype in DTYPES for shape in SHAPES]
    return same + [_case(dtype, FP8, shape) for dtype in HALF_TYPES for shape in SHAPES[1:3]]


def _case(dtype: torch.dtype, stored: torch.dtype, shape: tuple[int, int, int, int]) -> Case:
    rows, heads, kv_heads, dim = shape

    def inputs(generator: torch.Generator, device: torch.device) -> Values:
        qkv = torch.randn(rows, heads + 2 * kv_heads, dim, generator=generator, device=device)
        cache = torch.randn(SLOTS, 2, kv_heads, dim, generator=generator, device=device)
        cos, sin = rope_tables(POSITIONS, dim, 10_000.0, torch.float32, None)
        slots = torch.randperm(SLOTS, generator=generator, device=device)[:rows].to(torch.int32)
        slots[rows // 2 : rows // 2 + rows // 3] = -1
        return {
            "qkv": qkv.to(dtype),
            "cache": cache.to(stored),
            "positions": _positions(rows, generator, device),
            "cos": cos[:, 0, : dim // 2].contiguous().to(device),
            "sin": sin[:, 0, dim // 2 :].contiguous().to(device),
            "slots": slots,
        }

    def run(values: Values, out: Values) -> None:
        from kernels.rope.triton_impl import rope_and_cache as kernel

        tables = (values["positions"], values["cos"], values["sin"], values["slots"])
        kernel(out["qkv"], *tables, out["cache"], heads)

    def reference(values: Values, initial: Values) -> Values:
        tables = (values["positions"], values["cos"], values["sin"], values["slots"])
        qkv, cache = rope_and_cache(initial["qkv"], *tables, initial["cache"], heads)
        return {"qkv": qkv, "cache": cache}

    kind = ", cache fp8" if stored == FP8 else ""
    text = f"{rows} rows x {heads}/{kv_heads} heads x {dim}{kind}"
    return Case("rope_and_cache", dtype, text, 1, inputs, _outputs, run, reference)


def _positions(rows: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """Anywhere, and the last one."""
    found = torch.randint(POSITIONS, (rows,), generator=generator, device=device)
    found[-1] = POSITIONS - 1
    return found.to(torch.int32)


def _outputs(values: Values) -> Values:
    """Both are changed in place: V of qkv and all other slots must stay as they are."""
    return {"qkv": values["qkv"], "cache": values["cache"]}
