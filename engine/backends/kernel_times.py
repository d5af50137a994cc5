"""How long each kernel of one forward pass took. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

Mark = Callable[[str], None]
"""Called with the name of a kernel when it has ended, or has been launched on a device."""


class KernelTime(NamedTuple):
    """All calls of one kernel in one forward pass."""

    kernel: str
    calls: int
    time_ns: int


def unmarked(kernel: str) -> None:
    """The mark of a pass that is not timed."""


def summed(kernels: Sequence[str], times_ns: Sequence[int]) -> list[KernelTime]:
    """One row a kernel from one a call, in the order in which each first ran."""
    found: dict[str, KernelTime] = {}
    for kernel, ns in zip(kernels, times_ns, strict=True):
        before = found.get(kernel, KernelTime(kernel, 0, 0))
        found[kernel] = KernelTime(kernel, before.calls + 1, before.time_ns + ns)
    return list(found.values())
