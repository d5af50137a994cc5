"""Least squares with non-negative coefficients, and a robust form of it. numpy only.

A coefficient of a step-time model is a time per something, so it cannot be negative; and the odd
step that the operating system held up must not bend the fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDS = 25
_NEAR = 0.01  # relative errors below it weigh alike: they are the noise of a good step
_LOOSE = 0.1  # so near to its prior a coefficient is not pulled harder


def nonnegative(columns: Floats, values: Floats) -> Floats:
    """x >= 0 that minimises |columns x - values|². Lawson and Hanson 1974, chapter 23.

    columns [n, k], values [n]; k is small. Columns are scaled, so units do not matter.
    """
    scale = np.sqrt((columns**2).sum(axis=0))
    scale[scale == 0] = 1.0
    scaled = columns / scale
    x: Floats = _active_set(scaled.T @ scaled, scaled.T @ values) / scale
    return x


def _active_set(gram: Floats, target: Floats) -> Floats:
    """On normal equations: let in the coefficient that helps most, drop those below 0."""
    count = len(target)
    x, free = np.zeros(count), np.zeros(count, bool)
    least = 1e-10 * (float(np.abs(target).max(initial=0.0)) or 1.0)
    for _ in range(10 * count):
        gain = np.where(free, -np.inf, target - gram @ x)
        best = int(np.argmax(gain))
        if gain[best] <= least:
            break
        free[best] = True
        x, free = _feasible(gram, target, x, free)
    return x


def _feasible(gram: Floats, target: Floats, x: Floats, free: NDArray[Any]) -> tuple[Floats, Any]:
    """The free coefficients' least squares, moving towards it only as far as all stay >= 0."""
    while True:
        wanted = np.zeros(len(x))
        wanted[free] = np.linalg.lstsq(gram[np.ix_(free, free)], target[free], rcond=None)[0]
        low = free & (wanted <= 0)
        if not low.any():
            return wanted, free
        share = float(np.min(x[low] / np.maximum(x[low] - wanted[low], 1e-300)))
        x = x + share * (wanted - x)
        free = free & ~(low & (x <= 1e-12 * (1 + x.max())))
        x = np.where(free, x, 0.0)


def robust(
    columns: Floats, values: Floats, weights: Floats, prior: Floats | None = None, trust: float = 0
) -> Floats:
    """Non-negative x for which the values scatter evenly around columns x: a fit of medians.

    Minimises the weighted sum of |values - fitted| / fitted by iteratively reweighted least
    squares. prior [k]: coefficients to stay near, as if `trust` more values had said each of them,
    to within 10%; one that the values say nothing about stays.
    """
    prior = np.zeros(columns.shape[1]) if prior is None else prior
    fitted, x = values, prior
    for _ in range(_ROUNDS):
        error = np.maximum(np.abs(values / fitted - 1), _NEAR)
        root = np.sqrt(weights / error) / fitted
        pull = _pull(x, prior, trust * float(weights.mean()))
        rows = np.vstack([columns * root[:, None], np.diag(pull)])
        fresh = nonnegative(rows, np.concatenate([values * root, pull * prior]))
        if np.allclose(fresh, x, rtol=1e-3, atol=0):
            break
        x = fresh
        fitted = np.maximum(columns @ x, 1e-3 * values)
    return fresh


def _pull(x: Floats, prior: Floats, weight: float) -> Floats:
    """How strongly each coefficient is held to its prior; one without is free."""
    known = np.where(prior > 0, prior, 1.0)
    away = np.maximum(np.abs(x / known - 1), _LOOSE)
    return np.asarray(np.where(prior > 0, np.sqrt(weight / away) / known, 0.0))
