"""Non-negative least squares against brute force, and what the robust form does with noise."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.replay.regression import Floats, nonnegative, robust


def best_by_trying(columns: Floats, values: Floats) -> float:
    """The least error over all subsets of columns whose own solution is non-negative."""
    count = columns.shape[1]
    subsets = chain.from_iterable(combinations(range(count), n) for n in range(1, count + 1))
    errors = [float(values @ values)]
    for subset in subsets:
        chosen = columns[:, list(subset)]
        x = np.linalg.lstsq(chosen, values, rcond=None)[0]
        if (x >= 0).all():
            errors.append(float(np.sum((chosen @ x - values) ** 2)))
    return min(errors)


@given(st.integers(0, 10_000), st.integers(1, 5), st.floats(0.001, 1e9))
@settings(max_examples=150, deadline=None)
def test_no_subset_of_columns_does_better(seed: int, count: int, unit: float) -> None:
    random = np.random.default_rng(seed)
    columns = random.normal(size=(12, count)) * unit ** random.integers(0, 2, count)
    values = random.normal(size=12)
    x = nonnegative(columns, values)
    assert (x >= 0).all()
    error = float(np.sum((columns @ x - values) ** 2))
    assert error <= best_by_trying(columns, values) * (1 + 1e-7) + 1e-9


def test_equal_columns_and_empty_ones_do_not_hurt() -> None:
    one = np.ones(8)
    columns = np.column_stack([one, one, np.zeros(8)])
    x = nonnegative(columns, 3 * one)
    assert (columns @ x).tolist() == pytest.approx([3.0] * 8)
    assert x[2] == 0


def line(noise: Floats) -> tuple[Floats, Floats]:
    rows = np.arange(1.0, len(noise) + 1)
    return np.column_stack([np.ones(len(rows)), rows]), (2e-3 + 1e-4 * rows) * noise


def test_spikes_do_not_bend_the_fit() -> None:
    noise = np.ones(400)
    noise[::12] = 20.0  # held up by the system
    columns, values = line(noise)
    x = robust(columns, values, np.ones(len(values)))
    assert x.tolist() == pytest.approx([2e-3, 1e-4], rel=5e-3)
    plain = nonnegative(columns, values)
    assert abs(plain @ [1, 200] - 2.2e-2) > 0.5 * 2.2e-2, "least squares alone would be bent"


def test_half_above_half_below() -> None:
    random = np.random.default_rng(3)
    columns, values = line(np.exp(random.normal(0, 0.8, 2000)))
    above = values > columns @ robust(columns, values, np.ones(len(values)))
    assert above.mean() == pytest.approx(0.5, abs=0.02)


def test_what_the_values_say_nothing_about_stays_at_the_prior() -> None:
    columns = np.column_stack([np.ones(50), np.zeros(50)])
    prior = np.array([1.0, 7.0])
    x = robust(columns, np.full(50, 3.0), np.ones(50), prior, 5.0)
    assert x[1] == pytest.approx(7.0)
    assert x[0] == pytest.approx(3.0, rel=0.05), "fifty values outweigh five"


def test_few_values_stay_near_the_prior() -> None:
    columns, prior = np.ones((1, 1)), np.array([1.0])
    near = robust(columns, np.array([3.0]), np.ones(1), prior, 20.0)
    far = robust(columns, np.array([3.0]), np.ones(1), prior, 0.001)
    assert near[0] < 1.5 < 2.9 < far[0]
