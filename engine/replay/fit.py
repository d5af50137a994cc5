"""The time of a step from what it runs, fitted to recorded steps.

    forward = overhead + max(read, math) + unhidden · min(read, math) + attention
    read = weight bytes / bandwidth,  math = matmul FLOPs / compute rate
    attention = its FLOPs / its rate + KV bytes / their rate + sequences · a time each
    host = overhead + sequences · a time each + rows · a time each

Williams et al.'s roofline (CACM 2009) with what a real machine adds: kernels below the roof,
reading that does not hide all of the math, and time that is neither. No coefficient is negative,
and neither rate beats the run's own peaks. All phases share the physics, so that decodes say what
reading costs and prompts what math costs; each phase then has coefficients of its own, which stay
near the shared ones unless its steps say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import UserError
from engine.replay.regression import Floats, robust
from engine.replay.steps import Steps, Work
from telemetry.schema import PHASES

FORM = (
    "forward = overhead + max(read, math) + unhidden * min(read, math) + attention; "
    "host = overhead + per sequence + per row"
)
LEAST_STEPS = 30
_FORWARD = (
    *("overhead_s", "s_per_matmul_flop", "s_per_attention_flop", "s_per_kv_byte"),
    "s_per_sequence",
)
_HOST = ("overhead_s", "s_per_sequence", "s_per_row")
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the shorter of read and math that is not hidden
_TRUST = 20.0  # the shared fit counts in a phase like so many of its steps
_MOST_STEPS = 4000  # that one fit looks at; more tell nothing new
_SEED = 20


@dataclass(frozen=True, slots=True)
class Bend:
    """Where a step turns from reading to computing, and how sharply.

    ridge: FLOP/byte of weights where both take equal time. unhidden: the share of the shorter one
    that is paid all the same; 0 is a perfect roofline, 1 no overlap at all.
    """

    ridge: float
    unhidden: float

    def matmul(self, flops: Any, weight_bytes: Any) -> Any:
        """The matmuls' time in FLOPs at the compute rate."""
        read = self.ridge * weight_bytes
        return np.maximum(read, flops) + self.unhidden * np.minimum(read, flops)


@dataclass(frozen=True, slots=True)
class PhaseFit:
    """Coefficients of one phase: seconds per step, FLOP, FLOP, byte and sequence; and the host's
    per step, sequence and row. steps: how many were recorded."""

    forward: Floats
    host: Floats
    steps: int

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
        overhead, matmul, attention, kv, sequence = self.phases[work.phase].forward.tolist()
        read, math = self.bend.ridge * work.weight_bytes, work.matmul_flops
        longer, shorter = (read, math) if read > math else (math, read)
        return float(
            overhead
            + matmul * (longer + self.bend.unhidden * shorter)
            + attention * work.attention_flops
            + kv * work.kv_bytes
            + sequence * work.sequences
        )

    def host_s(self, work: Work) -> float:
        overhead, sequence, row = self.phases[work.phase].host.tolist()
        return float(overhead + sequence * work.sequences + row * work.rows)

    def to_json(self) -> dict[str, Any]:
        """Coefficients with their units in their names, per phase."""
        phases = {name: fit.to_json() for name, fit in self.phases.items()}
        bend = {"ridge_flop_per_byte": self.bend.ridge, "unhidden_share": self.bend.unhidden}
        return {"form": FORM, **bend, "phases": phases}

    def step_s(self, steps: Steps) -> Floats:
        """Fitted times of recorded steps, each by its own phase, [n]."""
        forward, host = _forward_columns(steps, self.bend), _host_columns(steps)
        times = np.zeros(len(steps))
        for i, phase in enumerate(PHASES):
            fit = self.phases[phase]
            times += (steps.phase == i) * (forward @ fit.forward + host @ fit.host)
        return times


def fit_steps(
    steps: Steps, peak_flops: float | None = None, peak_bandwidth: float | None = None
) -> StepTimeModel:
    """Fit both parts of the time. Raises UserError for a recording too short to tell anything."""
    if len(steps) < LEAST_STEPS:
        raise UserError(
            f"the run has {len(steps)} steps: a step-time model needs {LEAST_STEPS} or more, "
            "record a longer run"
        )
    sample = _sample(steps)
    bend, shared = _shared_forward(sample, peak_flops, peak_bandwidth)
    host = robust(_host_columns(sample), _positive(sample.host_s), _balance(sample))
    phases = {}
    for phase in PHASES:
        own = sample.of_phase(phase)
        count = int((steps.phase == PHASES.index(phase)).sum())
        phases[phase] = PhaseFit(
            _own(_forward_columns(own, bend), own.forward_s, shared),
            _own(_host_columns(own), own.host_s, host),
            count,
        )
    return StepTimeModel(bend, phases)


def _sample(steps: Steps) -> Steps:
    """At most _MOST_STEPS of them, of rare phases all that fit."""
    if len(steps) <= _MOST_STEPS:
        return steps
    random = np.random.default_rng(_SEED)
    chosen, room = [], _MOST_STEPS
    found = [np.flatnonzero(steps.phase == i) for i in range(len(PHASES))]
    for left, rows in zip((3, 2, 1), sorted(found, key=len), strict=True):
        take = min(len(rows), room // left)
        chosen.append(random.choice(rows, take, replace=False))
        room -= take
    return steps.where(np.sort(np.concatenate(chosen)))


def _balance(steps: Steps) -> Floats:
    """Weights with which each phase counts the same, however many steps it has."""
    counts = np.bincount(steps.phase, minlength=len(PHASES))
    return np.asarray(1.0 / counts[steps.phase], dtype=float)


def _forward_columns(steps: Steps, bend: Bend) -> Floats:
    matmul = bend.matmul(steps.matmul_flops, steps.weight_bytes)
    columns = (matmul, steps.attention_flops, steps.kv_bytes, steps.sequences)
    return np.column_stack([np.ones(len(steps)), *columns])


def _host_columns(steps: Steps) -> Floats:
    return np.column_stack([np.ones(len(steps)), steps.sequences, steps.rows])


def _positive(times_s: Floats) -> Floats:
    return np.maximum(times_s, 1e-7)


def _own(columns: Floats, times_s: Floats, shared: Floats) -> Floats:
    if not len(times_s):
        return shared
    return robust(columns, _positive(times_s), np.ones(len(times_s)), shared, _TRUST)


def _shared_forward(
    steps: Steps, peak_flops: float | None, peak_bandwidth: float | None
) -> tuple[Bend, Floats]:
    """The bend and the coefficients with the least error that no peak forbids."""
    weights, times_s = _balance(steps), _positive(steps.forward_s)
    found: list[tuple[float, Bend, Floats]] = []
    for bend in _bends(peak_flops, peak_bandwidth):
        columns = _forward_columns(steps, bend)
        x = robust(columns, times_s, weights)
        error = np.minimum(np.abs(times_s / (columns @ x) - 1), 0.5)
        excess = _excess(bend, float(x[1]), peak_flops, peak_bandwidth)
        found.append((float(np.average(error, weights=weights)) + excess, bend, x))
    best = min(found, key=lambda f: f[0])
    return best[1], best[2]


def _bends(peak_flops: float | None, peak_bandwidth: float | None) -> list[Bend]:
    """From an eighth of the machine's ridge to four times it; wider where no peak is known."""
    if peak_flops and peak_bandwidth:
        ridges = [peak_flops / peak_bandwidth * 2.0 ** (n / 2) for n in range(-6, 5)]
    else:
        ridges = [2.0**n for n in range(11)]
    return [Bend(ridge, share) for ridge in ridges for share in _SHARES]


def _excess(
    bend: Bend, per_flop_s: float, peak_flops: float | None, peak_bandwidth: float | None
) -> float:
    """How far a fit beats the peaks: reading or computing faster than the machine can."""
    if not (peak_flops and peak_bandwidth):
        return 0.0
    faster_math = 1 - per_flop_s * peak_flops
    faster_read = 1 - per_flop_s * bend.ridge * peak_bandwidth
    return max(0.0, faster_math - 0.05) + max(0.0, faster_read - 0.05)
