"""What the device reaches: a copy, a matmul, and the least time between two kernels."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels.silu_and_mul.triton_impl import silu_and_mul
from telemetry.clock import now_ns, seconds
from tests.gpu.measure import Bench
from tests.gpu.sections import Row

_LAUNCHES = 1000


def rows(bench: Bench) -> Iterator[Row]:
    yield _copy(bench)
    yield _matmul(bench)
    yield _launch(bench)
    yield _host(bench)


def _copy(bench: Bench) -> Row:
    """ceiling: bytes read and written a second."""
    a = torch.zeros(bench.pick(2 << 30, 1 << 12), dtype=torch.uint8, device=bench.device)
    b = torch.empty_like(a)
    time_s = bench.seconds(lambda: b.copy_(a))
    return _row("copy", time_s, 2 * a.numel())


def _matmul(bench: Bench) -> Row:
    """ceiling: bf16 FLOPs a second, cuBLAS, random operands (zeros draw less power)."""
    size = bench.pick(8192, 32)
    a, b = bench.random(size, size), bench.random(size, size)
    time_s = bench.seconds(lambda: a @ b)
    return _row("matmul", time_s, 2 * size**3)


def _launch(bench: Bench) -> Row:
    """ceiling: seconds of an empty kernel among others in a CUDA graph."""
    if bench.rehearsal:
        return _row("launch", None, 1)
    x = torch.zeros(32, device=bench.device)
    x.add_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_LAUNCHES):
            x.add_(1)
    time_s = bench.seconds(graph.replay)
    return {"name": "launch", "seconds": time_s, "ceiling": (time_s or 0.0) / _LAUNCHES}


def _host(bench: Bench) -> Row:
    """Seconds of the host for one launcher: contract, allocation and launch."""
    x = bench.random(1, 256)
    silu_and_mul(x)
    begun = now_ns()
    for _ in range(bench.pick(_LAUNCHES, 1)):
        silu_and_mul(x)
    time_s = None if bench.rehearsal else seconds(now_ns() - begun) / _LAUNCHES
    return {"name": "host, one launcher", "host_s": time_s}


def _row(name: str, time_s: float | None, amount: int) -> Row:
    return {"name": name, "seconds": time_s, "ceiling": amount / time_s if time_s else None}
