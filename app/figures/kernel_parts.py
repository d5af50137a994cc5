"""A step by kernel: what each took, what its roof allows, and what of the step was no kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import known, records
from app.figures.plane import Peaks
from engine.physics.kernel_cost import KERNELS

_ORDER = {name: place for place, name in enumerate(KERNELS)}


@dataclass(frozen=True, slots=True)
class Kernel:
    """All calls of one kernel in one step; flops and bytes None where nobody counts them."""

    name: str
    calls: int
    time_s: float
    flops: float | None
    bytes: float | None

    @property
    def short(self) -> str:
        """Its name where there is little room."""
        return self.name.removesuffix("_linear").removesuffix("_and_cache")

    @property
    def intensity(self) -> float | None:
        """FLOP/byte; None where either is not counted, or nothing is read."""
        return self.flops / self.bytes if self.flops and self.bytes else None

    def floor_s(self, peaks: Peaks) -> float:
        """The least time that what is counted takes under these peaks."""
        return max((self.flops or 0) / peaks.flops, (self.bytes or 0) / peaks.bandwidth)

    def role(self, peaks: Peaks) -> str:
        """The term that binds it: compute or memory."""
        computes = (self.flops or 0) / peaks.flops > (self.bytes or 0) / peaks.bandwidth
        return "compute" if computes else "memory"

    def reached(self, peaks: Peaks | None) -> float | None:
        """Share of its roof; None without peaks, or where no FLOPs are counted: what such a kernel
        moves is not counted either, but for its weights or KV."""
        if peaks is None or not self.flops or self.time_s <= 0:
            return None
        return self.floor_s(peaks) / self.time_s


@dataclass(frozen=True, slots=True)
class TimedStep:
    """What steps of one phase took, kernels in the order in which they run; medians, seconds.

    n: of how many timed steps; step: the newest of them.
    """

    step: int
    phase: str
    n: int
    gaps_s: float
    host_s: float
    rows: str
    kernels: Sequence[Kernel]

    @property
    def kernels_s(self) -> float:
        return sum(kernel.time_s for kernel in self.kernels)

    @property
    def t_step_s(self) -> float:
        """All parts; less than the median step where something now and then stalls a kernel."""
        return self.kernels_s + self.gaps_s + self.host_s

    def floor_s(self, peaks: Peaks) -> float:
        """The least time of all its kernels one after the other."""
        return sum(kernel.floor_s(peaks) for kernel in self.kernels)


def timed_steps(steps: pd.DataFrame, kernels: pd.DataFrame) -> dict[str, TimedStep]:
    """By phase, from `queries.kernels.timed_steps` and `.kernels` over the same steps."""
    rows: dict[str, list[Kernel]] = {}
    for row in records(kernels):
        rows.setdefault(str(row["phase"]), []).append(_kernel(row))
    phases = [(str(row["phase"]), row) for row in records(steps)]
    return {phase: _timed_step(phase, row, rows.get(phase, [])) for phase, row in phases}


def _kernel(row: Mapping[str, Any]) -> Kernel:
    calls, time_s = int(row["calls"]), float(row["time_s"])
    return Kernel(str(row["kernel"]), calls, time_s, known(row["flops"]), known(row["bytes"]))


def _timed_step(phase: str, row: Mapping[str, Any], kernels: Sequence[Kernel]) -> TimedStep:
    return TimedStep(
        step=int(row["step"]),
        phase=phase,
        n=int(row["n"]),
        gaps_s=max(0.0, float(row["gaps_s"])),
        host_s=float(row["t_host_s"]),
        rows=_rows(int(row["prompt_tokens"]), int(row["decodes"])),
        kernels=sorted(kernels, key=lambda k: (_ORDER.get(k.name, len(_ORDER)), k.name)),
    )


def _rows(prompt_tokens: int, decodes: int) -> str:
    """Who ran in it."""
    parts = [f"{prompt_tokens:,} prompt tokens"] if prompt_tokens else []
    if decodes:
        parts.append(f"{decodes} decode{'s' if decodes > 1 else ''}")
    return ", ".join(parts)


def share(fraction: float) -> str:
    """`share(0.1834)` is "18%": two significant figures, since no step is exactly the next."""
    shown = 100 * fraction
    return f"{shown:.0f}%" if shown >= 9.95 else f"{shown:.2g}%"
