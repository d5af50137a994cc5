"""Numbers for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.units import UNKNOWN, count, duration, percent, si, three


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123456, "0.0123"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (999.6, "1,000"),
        (123456, "123,000"),
        (0, "0"),
        (-4.567, "-4.57"),
    ],
)
def test_three_figures(value: float, text: str) -> None:
    assert three(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (989e12, "989 TFLOP/s"),
        (999.96e9, "1.00 TFLOP/s"),
        (25.3e9, "25.3 GFLOP/s"),
        (12.0, "12.0 FLOP/s"),
        (0.5, "0.500 FLOP/s"),
    ],
)
def test_si_prefixes(value: float, text: str) -> None:
    assert si(value, "FLOP/s") == text


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (0.0123, "12.3 ms"),
        (1.5, "1.50 s"),
        (0.00099999, "1.00 ms"),
        (45e-6, "45.0 µs"),
        (0, "0 ms"),
    ],
)
def test_durations(value_s: float, text: str) -> None:
    assert duration(value_s) == text


@pytest.mark.parametrize("show", [three, duration, percent, count, lambda v: si(v, "B")])
@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_unknown_is_a_dash_and_never_zero(show: object, value: float | None) -> None:
    assert callable(show)
    assert show(value) == UNKNOWN


@given(st.floats(1e-6, 1e15))
def test_three_figures_are_within_half_of_the_last(value: float) -> None:
    shown = float(three(value).replace(",", ""))
    assert abs(shown - value) <= 0.00501 * value
