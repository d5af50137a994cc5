"""The GPU of this machine, and what it can do at most. Imports no triton."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.errors import UserError

_TRIES = 5
_MATMUL = 8192  # rows and columns: large enough for the peak, 6 ms of an H100 in bf16
_COPY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """The best of a few tries: FLOP/s of a large matmul, bytes/s of a copy (read and written)."""

    flops: float
    bandwidth: float


def cuda_device() -> torch.device:
    """The GPU to run on. Raises UserError where there is none, or no triton."""
    if importlib.util.find_spec("triton") is None:
        raise UserError(
            "backend cuda needs triton, which is not installed: run pip install triton, or use "
            "--backend cpu"
        )
    if not torch.cuda.is_available():
        raise UserError(
            "backend cuda needs a CUDA device, and torch finds none (is this a CUDA build of "
            "torch, with a driver?): use --backend cpu, or --backend modelled with --device"
        )
    return torch.device("cuda", torch.cuda.current_device())


def measure_peaks(device: torch.device, dtype: torch.dtype) -> DevicePeaks:
    """Takes a quarter of a second and 2 GiB."""
    n = _MATMUL if dtype.itemsize == 2 else _MATMUL // 2
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    flops = 2 * n**3 / _best_s(lambda: torch.mm(a, b))
    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    bandwidth = 2 * _COPY_BYTES / _best_s(lambda: target.copy_(source))
    return DevicePeaks(flops, bandwidth)


def _best_s(work: Callable[[], object]) -> float:
    """By the device's own events, after one run that loads the kernel."""
    work()
    times: list[float] = []
    for _ in range(_TRIES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return min(times)
