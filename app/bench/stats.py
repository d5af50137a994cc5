"""Medians with their spread, ratios of pairs, and the crossover of two straight lines."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of several measurements of one thing."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """ValueError where nothing was measured."""
        if not values:
            raise ValueError("a median needs one measurement or more")
        return cls(statistics.median(values), min(values), max(values))

    def inverse(self, amount: float = 1.0) -> Spread:
        """amount over it: seconds become a rate and the other way round."""
        return Spread(amount / self.median, amount / self.high, amount / self.low)


def pair_ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """ours / theirs, pair by pair: what both sides of a pair suffered drops out.

    ValueError for lists that do not pair up.
    """
    return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])


RESAMPLES = 2000


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the median (Efron 1979), the same for the same values."""
    rng = random.Random(0)
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    cut = int(RESAMPLES * (1 - level) / 2)
    return medians[cut], medians[-1 - cut]


FLAT_BATCH, STEEP_BATCH = 4, 64  # the fits' parts: batches up to the one, and from the other on


@dataclass(frozen=True, slots=True)
class MeasuredCrossover:
    """Where the flat part of step time over batch meets its slope.

    batch: flat_s over slope_s, the slope fitted through the origin, as the roofline's time of
    computing runs (t = batch · t_1). batch_affine: with a slope that may start above the origin,
    None where that line lies above the flat part already at batch 0.
    """

    batch: float
    batch_affine: float | None
    flat_s: float
    slope_s: float


def crossover(step_s: dict[int, float]) -> MeasuredCrossover | None:
    """From step time by batch; None without a batch of at most 4 and one of 64 or more."""
    flat = [t for batch, t in step_s.items() if batch <= FLAT_BATCH]
    steep = {batch: t for batch, t in step_s.items() if batch >= STEEP_BATCH}
    if not flat or not steep:
        return None
    flat_s = statistics.fmean(flat)
    slope_s = sum(b * t for b, t in steep.items()) / sum(b * b for b in steep)
    return MeasuredCrossover(flat_s / slope_s, _affine(steep, flat_s), flat_s, slope_s)


def _affine(steep: dict[int, float], flat_s: float) -> float | None:
    if len(steep) < 2:
        return None
    line = statistics.linear_regression(list(steep), list(steep.values()))
    batch = (flat_s - line.intercept) / line.slope
    return batch if batch > 0 else None
