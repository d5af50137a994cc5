"""Runs kernels in Triton's interpreter for test_triton_pointwise; prints what they gave as JSON.

A process of its own: one that interprets cannot compile.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from kernels.checking.interpreter import interpret


def main() -> None:
    torch.set_num_threads(1)
    interpret()
    generator = torch.Generator().manual_seed(3)
    print(json.dumps({**_sampling(generator), **_rounded(), **_matmuls(generator)}))


def _sampling(generator: torch.Generator) -> dict[str, Any]:
    seeds = torch.randint(-(2**62), 2**62, (6,), generator=generator)
    steps = torch.randint(0, 2**31 - 1, (6,), generator=generator).to(torch.int32)
    logits = torch.randn(6, 301, generator=generator).bfloat16() * 3
    heat, top_p = torch.full((6,), 0.9), torch.full((6,), 0.8)
    tied = torch.zeros(1, 300)
    tied[0, [5, 6, 299]] = 1.0
    return {
        "seeds": seeds.tolist(),
        "steps": steps.tolist(),
        "flat_tokens": _sample(torch.zeros(6, 4096).half(), heat, torch.ones(6), seeds, steps),
        "together": _sample(logits, heat, top_p, seeds, steps),
        "alone": [
            _sample(*(t[row : row + 1] for t in (logits, heat, top_p, seeds, steps)))[0]
            for row in range(6)
        ],
        "tied_greedy": _sample(tied, torch.zeros(1), top_p[:1], seeds[:1], steps[:1])[0],
    }


def _sample(*arguments: Tensor) -> list[int]:
    from kernels.sampling.triton_impl import sample

    tokens: list[int] = sample(*arguments).tolist()
    return tokens


def _rounded() -> dict[str, Any]:
    """All float16 numbers through the cache write, as V of one token of 65,536 elements."""
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    stored = _write(numbers)
    finite = numbers.isfinite() & (numbers.abs() < 464)  # beyond them torch gives NaN
    expected = numbers[finite].to(torch.float8_e4m3fn).float()
    largest = _write(torch.tensor([60_000.0, -60_000.0], dtype=torch.float16))
    return {
        "fp8_wrong": int((stored[finite] != expected).sum()),
        "fp8_largest": largest.tolist(),
        "fp8_nan": bool(stored[numbers.isnan()].isnan().all()),
    }


def _write(numbers: Tensor) -> Tensor:
    """V's numbers as an fp8 cache holds them, float32."""
    from kernels.rope.triton_impl import rope_and_cache

    dim = 64 if len(numbers) % 64 == 0 else len(numbers)
    rows = len(numbers) // dim
    qkv = torch.zeros(1, 3 * rows, dim, dtype=torch.float16)
    qkv[0, 2 * rows :] = numbers.view(rows, dim)
    cache = torch.zeros(1, 2, rows, dim).to(torch.float8_e4m3fn)
    angles = torch.ones(1, dim // 2)
    zero = torch.zeros(1, dtype=torch.int32)
    rope_and_cache(qkv, zero, angles, angles, zero, cache, heads=rows)
    return cache[0, 1].float().flatten()


def _matmuls(generator: torch.Generator) -> dict[str, Any]:
    """How many outputs of a row differ between a batch of one and one of sixteen; k is split."""
    from kernels.quantised_linear.triton_impl import quantised_linear

    n, k = 40, 1056
    x = torch.randn(16, k, generator=generator).bfloat16()
    bytes_of = torch.randint(0, 256, (n, k), generator=generator).to(torch.uint8)
    scales = torch.rand(n, k // 32, generator=generator).half()
    kinds: dict[str, tuple[Tensor, ...]] = {
        "int8": (bytes_of.view(torch.int8), scales[:, 0].contiguous()),
        "int4": (bytes_of[:, : k // 2].contiguous(), scales, -8 * scales),
    }
    together = {kind: quantised_linear(x, *weights) for kind, weights in kinds.items()}
    alone = {kind: quantised_linear(x[9:10], *weights) for kind, weights in kinds.items()}
    differ = {kind: int((alone[kind][0] != together[kind][9]).sum()) for kind in kinds}
    return {"rows_differ": differ}


if __name__ == "__main__":
    main()
