"""What the fit leaves: how recorded steps differ from their fitted times, to be drawn again.

Two things make a step take longer or shorter than its fit. The machine's pace drifts over seconds
(a neighbour, a clock rate); and single steps scatter, now and then far (the system takes a core
away). Neither is structure that a schedule could change, so neither belongs in the coefficients;
both belong in what is predicted. A draw replays at the pace of one stretch of the recording, with
the scatter of single steps like it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from engine.replay.regression import Floats
from engine.replay.step_model import StepTimeModel
from engine.replay.steps import Steps
from telemetry.schema import PHASES

STRETCHES = 8
_LEAST_STRETCH = 15  # steps; shorter ones have no pace of their own
_ALIKE = 50  # steps of the nearest fitted times, of which one is drawn; a quarter of few
_FEW = 10  # a phase with fewer steps borrows the scatter of all

Ratio = Callable[[str, float], float]
"""From the phase and the fitted time of a step (s) to the factor by which it takes longer."""


@dataclass(frozen=True, slots=True)
class _Scatter:
    """Ratios of measured to fitted time, by rising fitted time."""

    fitted_s: Floats
    ratios: list[float]

    @classmethod
    def of(cls, fitted_s: Floats, ratios: Floats) -> _Scatter:
        order = np.argsort(fitted_s, kind="stable")
        return cls(fitted_s[order], ratios[order].tolist())

    def draw(self, fitted_s: float, random: Random) -> float:
        """That of a step whose fitted time is about this long."""
        count = len(self.ratios)
        alike = min(_ALIKE, max(_FEW, count // 4))
        near = int(np.searchsorted(self.fitted_s, fitted_s))
        first = max(0, min(near - alike // 2, count - alike))
        return self.ratios[first + random.randrange(min(count, alike))]


@dataclass(frozen=True, slots=True)
class Residuals:
    """paces: median ratio of each stretch of the recording. summary: per phase, for people."""

    paces: list[float]
    scatter: dict[str, _Scatter]
    summary: dict[str, Any]

    def ratios(self, draw: int) -> Ratio:
        """The factors of one replay, the same for the same number."""
        random, pace = Random(f"residuals {draw}"), self.paces[draw % len(self.paces)]
        return lambda phase, fitted_s: pace * self.scatter[phase].draw(fitted_s, random)


def residuals(model: StepTimeModel, steps: Steps) -> Residuals:
    """Of the steps that a model was fitted to."""
    fitted_s = model.step_s(steps)
    ratios = steps.step_s / fitted_s
    stretches = np.array_split(ratios, max(1, min(STRETCHES, len(steps) // _LEAST_STRETCH)))
    paces = [float(np.median(stretch)) for stretch in stretches]
    single = ratios / np.repeat(paces, [len(s) for s in stretches])
    everything = _Scatter.of(fitted_s, single)
    scatter = {}
    for i, phase in enumerate(PHASES):
        own = steps.phase == i
        few = int(own.sum()) < _FEW
        scatter[phase] = everything if few else _Scatter.of(fitted_s[own], single[own])
    return Residuals(paces, scatter, _summary(steps, ratios, paces))


def _summary(steps: Steps, ratios: Floats, paces: list[float]) -> dict[str, Any]:
    """Per phase P5, P50 and P95 of measured over fitted time, minus 1."""
    phases = {}
    for i, phase in enumerate(PHASES):
        own = ratios[steps.phase == i] - 1
        if len(own):
            low, middle, high = (float(q) for q in np.quantile(own, (0.05, 0.5, 0.95)))
            phases[phase] = {"steps": len(own), "p5": low, "p50": middle, "p95": high}
    spread = [min(paces) - 1, max(paces) - 1]
    held_up = float(steps.held_up.mean())
    return {"phases": phases, "pace": spread, "steps_held_up_fraction": held_up}
