"""Marks between kernels that are called or launched one by one.

What ran since the mark before is a call of the kernel that a mark names. On a CPU ops run as they
are called, so a clock says when; on a GPU events in the device's own queue do. There, what the
device waited for a launch counts for the kernel that came late: in small steps kernels look slower
than they are. (Events have never run on a GPU here; the same marks on a CPU have.)
"""

from __future__ import annotations

from itertools import pairwise

import torch

from engine.backends.kernel_times import KernelTime, summed
from telemetry.clock import now_ns

_NS_PER_MS = 1e6


class Marks:
    """The marks of one forward pass, from now on; call it as a kernel_times.Mark."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._kernels: list[str] = []
        self._stamps: list[int] = []
        self._events: list[torch.cuda.Event] = []
        self._stamp()

    def __call__(self, kernel: str) -> None:
        self._kernels.append(kernel)
        self._stamp()

    def _stamp(self) -> None:
        if not self._on_gpu:
            self._stamps.append(now_ns())
            return
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._events.append(event)

    def times(self) -> list[KernelTime]:
        """By kernel; waits for the device."""
        return summed(self._kernels, self._intervals_ns())

    def _intervals_ns(self) -> list[int]:
        if not self._on_gpu:
            return [end - start for start, end in pairwise(self._stamps)]
        self._events[-1].synchronize()
        events = pairwise(self._events)
        return [round(start.elapsed_time(end) * _NS_PER_MS) for start, end in events]
