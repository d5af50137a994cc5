"""The other kernels: streams against a copy's bandwidth, matmuls beside cuBLAS."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels.moe.triton_impl import grouped_matmul, router
from kernels.quantised_linear.triton_impl import quantised_linear
from kernels.rms_norm.triton_impl import add_rms_norm, rms_norm
from kernels.rope.triton_impl import rope_and_cache
from kernels.sampling.triton_impl import sample
from kernels.silu_and_mul.triton_impl import silu_and_mul
from tests.gpu.measure import Bench, Work, element_bytes
from tests.gpu.sections import Row

_EPS = 1e-5
HEADS, KV_HEADS, DIM = 32, 8, 128
GROUP = 32  # weights of one int4 scale


def rows(bench: Bench) -> Iterator[Row]:
    for tokens in (1, bench.pick(8192, 5)):
        yield from _streams(bench, tokens)
    for tokens in (1, bench.pick(16, 3)):
        yield from _quantised(bench, tokens)
    for tokens in (bench.pick(64, 3), bench.pick(4096, 9)):
        yield from _experts(bench, tokens)
    for tokens in (1, bench.pick(256, 3)):
        yield _sampling(bench, tokens)


def _streams(bench: Bench, tokens: int) -> Iterator[Row]:
    hidden, inner = bench.pick(4096, 64), bench.pick(14336, 96)
    x, residual = bench.random(tokens, hidden), bench.random(tokens, hidden)
    weight, out = bench.random(hidden), torch.empty_like(x)
    shape = f"{tokens} x {hidden}"
    yield _row(
        bench, "rms_norm", shape, lambda: rms_norm(x, weight, _EPS, out), 2 * element_bytes(x)
    )
    yield _row(
        bench,
        "add_rms_norm",
        shape,
        lambda: add_rms_norm(x, residual, weight, _EPS, out),
        4 * element_bytes(x),
    )
    gate_up = bench.random(tokens, 2 * inner)
    gated = bench.random(tokens, inner)
    moved = element_bytes(gate_up, gated)
    yield _row(
        bench, "silu_and_mul", f"{tokens} x {inner}", lambda: silu_and_mul(gate_up, gated), moved
    )
    yield _rope(bench, tokens)


def _rope(bench: Bench, tokens: int) -> Row:
    qkv = bench.random(tokens, HEADS + 2 * KV_HEADS, DIM)
    cache = bench.random(tokens, 2, KV_HEADS, DIM)
    places = torch.arange(tokens, dtype=torch.int32, device=bench.device)
    cos, sin = (bench.random(tokens, DIM // 2, dtype=torch.float32) for _ in range(2))
    rotated = tokens * (HEADS + KV_HEADS) * DIM * 2
    return _row(
        bench,
        "rope_and_cache",
        f"{tokens} x {HEADS}/{KV_HEADS} x {DIM}",
        lambda: rope_and_cache(qkv, places, cos, sin, places, cache, HEADS),
        2 * rotated + element_bytes(cos, sin) + tokens * KV_HEADS * DIM * 2 * 3,
    )


def _quantised(bench: Bench, tokens: int) -> Iterator[Row]:
    """8192 x 81920 is the shape of which the notes tell Marlin's rate."""
    shapes = ((64, 64),) if bench.rehearsal else ((28_672, 4096), (81_920, 8192))
    for n, k in shapes:
        x, out = bench.random(tokens, k), bench.random(tokens, n)
        dense = bench.random(n, k)
        cublas_s = bench.seconds(lambda x=x, dense=dense: x @ dense.T)
        del dense
        bits = torch.randint(0, 127, (n, k), dtype=torch.int8, device=bench.device)
        packed = torch.randint(0, 255, (n, k // 2), dtype=torch.uint8, device=bench.device)
        row_scales = bench.random(n, dtype=torch.float16)
        scales, minimums = (bench.random(n, k // GROUP, dtype=torch.float16) for _ in range(2))
        for name, weights in (("int8", (bits, row_scales)), ("int4", (packed, scales, minimums))):
            yield {
                **_row(
                    bench,
                    f"quantised_linear {name}",
                    f"{tokens} x {k} -> {n}",
                    lambda x=x, w=weights, out=out: quantised_linear(x, *w, out=out),
                    element_bytes(x, out, *weights),
                    2 * tokens * n * k,
                ),
                "cublas_bf16_s": cublas_s,
            }


def _experts(bench: Bench, tokens: int) -> Iterator[Row]:
    experts, k = bench.pick(256, 8), bench.pick(6, 2)
    inner, outer = bench.pick(4096, 64), bench.pick(2048, 64)
    logits = bench.random(tokens, experts)
    shape = f"{tokens} x {k} of {experts}"
    yield _row(
        bench,
        "router",
        shape,
        lambda: router(logits, k, "sqrt_softplus", renormalise=True),
        element_bytes(logits) + tokens * k * 16,
    )
    chosen = router(logits, k, "sqrt_softplus", renormalise=True)[1]
    x, weights = bench.random(tokens, inner), bench.random(experts, outer, inner)
    used = len(chosen.unique())
    yield _row(
        bench,
        "grouped_matmul",
        f"{shape}, {inner} -> {outer}",
        lambda: grouped_matmul(x, weights, chosen),
        used * outer * inner * 2 + tokens * k * (inner + outer) * 2,
        2 * tokens * k * inner * outer,
    )


def _sampling(bench: Bench, tokens: int) -> Row:
    logits = bench.random(tokens, bench.pick(128_256, 300))
    how = _how(bench, tokens)
    shape = f"{tokens} x {logits.shape[1]}, top-p"
    return _row(bench, "sample", shape, lambda: sample(logits, *how), element_bytes(logits))


def _how(bench: Bench, tokens: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Temperature, top-p, seeds and steps."""
    temperature = torch.full((tokens,), 0.8, device=bench.device)
    seeds = torch.arange(tokens, device=bench.device)
    return temperature, torch.full_like(temperature, 0.9), seeds, seeds.to(torch.int32)


def _row(
    bench: Bench, name: str, shape: str, work: Work, moved: int, flops: int | None = None
) -> Row:
    time_s = bench.seconds(work)
    return {"name": name, "shape": shape, "seconds": time_s, "bytes": moved, "flops": flops}
