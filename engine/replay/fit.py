"""Fits a step-time model to recorded steps; see `engine.replay.step_model` for what it says."""

from __future__ import annotations

import numpy as np

from engine.errors import UserError
from engine.replay.bend_search import RunPeaks, balance, find_bend, positive
from engine.replay.regression import Floats, robust
from engine.replay.step_model import PhaseFit, StepTimeModel, forward_columns, host_columns
from engine.replay.steps import Steps
from telemetry.schema import PHASES

LEAST_STEPS = 30
_TRUST = 20.0  # the shared fit counts in a phase like so many of its steps
_MOST_STEPS = 4000  # that one fit looks at; more tell nothing new
_SEED = 20


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
    bend, shared = find_bend(sample, RunPeaks(peak_flops, peak_bandwidth))
    host = robust(host_columns(sample), positive(sample.host_s), balance(sample))
    phases = {}
    for phase in PHASES:
        own = sample.of_phase(phase)
        count = int((steps.phase == PHASES.index(phase)).sum())
        phases[phase] = PhaseFit(
            _own(forward_columns(own, bend), own.forward_s, shared),
            _own(host_columns(own), own.host_s, host),
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


def _own(columns: Floats, times_s: Floats, shared: Floats) -> Floats:
    if not len(times_s):
        return shared
    return robust(columns, positive(times_s), np.ones(len(times_s)), shared, _TRUST)
