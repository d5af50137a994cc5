"""The time of a step from what it runs, fitted to recorded steps.

    forward = overhead + max(read, math) + unhidden · min(read, math) + attention + sequences
    read = bytes / bandwidth,  math = FLOPs / compute rate: of the linear layers and the head, and
        of attention too where that fits better (a device whose kernels overlap)
    attention = its FLOPs / its rate + KV bytes / their rate: what is not in read and math
    host = overhead + sequences + rows, a time each

Williams et al.'s roofline (CACM 2009) with what a real machine adds: kernels below the roof,
reading that does not hide all of the math, and time that is neither. No coefficient is negative,
and neither rate beats the run's own peaks by more than a calibration may be off. All phases share
the physics, so that decodes say what reading costs and prompts what math costs; each phase then
has coefficients of its own, which stay near the shared ones unless its steps say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from engine.replay.regression import Floats
from engine.replay.steps import Steps, Work
from telemetry.schema import PHASES

FORM = (
    "forward = overhead + max(read, math) + unhidden * min(read, math) + attention + sequences; "
    "host = overhead + sequences + rows"
)
_FORWARD = (
    *("overhead_s", "s_per_flop", "s_per_attention_flop", "s_per_kv_byte"),
    "s_per_sequence",
)
_HOST = ("overhead_s", "s_per_sequence", "s_per_row")


@dataclass(frozen=True, slots=True)
class Bend:
    """Where a step turns from reading to computing, and how sharply.

    ridge: FLOP/byte where both take equal time. unhidden: the share of the shorter one that is
    paid all the same; 0 is a perfect roofline, 1 no overlap at all. whole: attention's FLOPs and
    the KV bytes are part of both; else attention runs by itself.
    """

    ridge: float
    unhidden: float
    whole: bool = False

    def bent(self, work: Any) -> Any:
        """Reading and math of a Work or of Steps together, as FLOPs at the compute rate."""
        math, read = work.matmul_flops, work.weight_bytes * self.ridge
        if self.whole:
            math, read = math + work.attention_flops, read + work.kv_bytes * self.ridge
        longer = (math + read + abs(math - read)) / 2
        return longer + self.unhidden * (math + read - longer)


@dataclass(frozen=True)
class PhaseFit:
    """Coefficients of one phase: seconds per step, FLOP, FLOP, byte and sequence; and the host's
    per step, sequence and row. steps: how many were recorded."""

    forward: Floats
    host: Floats
    steps: int

    @cached_property
    def coefficients(self) -> tuple[list[float], list[float]]:
        """Both as plain numbers."""
        return self.forward.tolist(), self.host.tolist()

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "forward": dict(zip(_FORWARD, self.forward.tolist(), strict=True)),
            "host": dict(zip(_HOST, self.host.tolist(), strict=True)),
        }


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Times of steps by phase."""

    bend: Bend
    phases: dict[str, PhaseFit]

    def forward_s(self, work: Work) -> float:
        overhead, bent, attention, kv, sequence = self.phases[work.phase].coefficients[0]
        return float(
            overhead
            + bent * self.bend.bent(work)
            + attention * work.attention_flops
            + kv * work.kv_bytes
            + sequence * work.sequences
        )

    def host_s(self, work: Work) -> float:
        overhead, sequence, row = self.phases[work.phase].coefficients[1]
        return overhead + sequence * work.sequences + row * work.rows

    def to_json(self) -> dict[str, Any]:
        """Coefficients with their units in their names, per phase."""
        phases = {name: fit.to_json() for name, fit in self.phases.items()}
        bend = {
            "ridge_flop_per_byte": self.bend.ridge,
            "unhidden_share": self.bend.unhidden,
            "attention_overlaps": self.bend.whole,
        }
        return {"form": FORM, **bend, "phases": phases}

    def step_s(self, steps: Steps) -> Floats:
        """Fitted times of recorded steps, each by its own phase, [n]."""
        forward, host = forward_columns(steps, self.bend), host_columns(steps)
        times = np.zeros(len(steps))
        for i, phase in enumerate(PHASES):
            fit = self.phases[phase]
            times += (steps.phase == i) * (forward @ fit.forward + host @ fit.host)
        return times


def forward_columns(steps: Steps, bend: Bend) -> Floats:
    columns = (bend.bent(steps), steps.attention_flops, steps.kv_bytes, steps.sequences)
    return np.column_stack([np.ones(len(steps)), *columns])


def host_columns(steps: Steps) -> Floats:
    return np.column_stack([np.ones(len(steps)), steps.sequences, steps.rows])
