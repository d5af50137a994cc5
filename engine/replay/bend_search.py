"""Where a machine turns from reading to computing: searched, since no linear fit finds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from engine.replay.regression import Floats, robust
from engine.replay.step_model import Bend, forward_columns
from engine.replay.steps import Steps
from telemetry.schema import PHASES

_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the shorter of read and math that is not hidden
_SLACK = 0.05  # a calibration is that exact
_MOST_ERROR = 0.5  # of a step that counts: one that was held up says nothing about the bend

_Tried = tuple[float, Bend, Floats]


@dataclass(frozen=True, slots=True)
class RunPeaks:
    """The run's own, FLOP/s and bytes/s; None where unknown."""

    flops: float | None
    bandwidth: float | None

    def bends(self, whole: bool) -> list[Bend]:
        """From an eighth of the machine's ridge to four times it; wider where no peak is known."""
        if self.flops and self.bandwidth:
            ridges = [self.flops / self.bandwidth * 2.0 ** (n / 2) for n in range(-6, 5)]
        else:
            ridges = [2.0**n for n in range(11)]
        return [Bend(*each) for each in product(ridges, _SHARES, (whole,))]

    def excess(self, bend: Bend, per_flop_s: float) -> float:
        """How far a fit beats the peaks: reading or computing faster than the machine can."""
        if not (self.flops and self.bandwidth):
            return 0.0
        faster_math = 1 - per_flop_s * self.flops
        faster_read = 1 - per_flop_s * bend.ridge * self.bandwidth
        return max(0.0, faster_math - _SLACK) + max(0.0, faster_read - _SLACK)


def find_bend(steps: Steps, peaks: RunPeaks) -> tuple[Bend, Floats]:
    """The bend and the coefficients with the least error that no peak forbids."""
    found = [_refined(steps, peaks, whole) for whole in (False, True)]
    _, bend, x = min(found, key=_error)
    return bend, x


def _refined(steps: Steps, peaks: RunPeaks, whole: bool) -> _Tried:
    """The best of a coarse grid, and then of two finer ones about it."""
    best = min((_try(steps, bend, peaks) for bend in peaks.bends(whole)), key=_error)
    for step, shares in ((1 / 8, (-0.125, 0.0, 0.125)), (1 / 32, (0.0,))):
        near = _around(best[1], step, shares)
        best = min((best, *(_try(steps, bend, peaks) for bend in near)), key=_error)
    return best


def _around(bend: Bend, step: float, shares: tuple[float, ...]) -> list[Bend]:
    """step: in octaves of the ridge."""
    ridges = [bend.ridge * 2.0 ** (n * step) for n in (-3, -2, -1, 1, 2, 3)]
    unhidden = {min(1.0, max(0.0, bend.unhidden + share)) for share in shares}
    return [replace(bend, ridge=r, unhidden=u) for r, u in product(ridges, sorted(unhidden))]


def _error(tried: _Tried) -> float:
    return tried[0]


def _try(steps: Steps, bend: Bend, peaks: RunPeaks) -> _Tried:
    """Mean relative error of the best fit with this bend, and more where it beats a peak."""
    weights, times_s = balance(steps), positive(steps.forward_s)
    columns = forward_columns(steps, bend)
    x = robust(columns, times_s, weights)
    error = np.minimum(np.abs(times_s / (columns @ x) - 1), _MOST_ERROR)
    excess = peaks.excess(bend, float(x[1]))
    return float(np.average(error, weights=weights)) + excess, bend, x


def balance(steps: Steps) -> Floats:
    """Weights with which a phase counts by the square root of its steps: rare ones count too."""
    counts = np.bincount(steps.phase, minlength=len(PHASES))
    return np.asarray(counts[steps.phase] ** -0.5, dtype=float)


def positive(times_s: Floats) -> Floats:
    """Times as a relative error can be taken of: a clock may show none at all."""
    return np.maximum(times_s, 1e-7)
