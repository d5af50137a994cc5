"""When envelopes leave: instants in milliseconds, an interval of 200."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from telemetry.departures import Departures

MS = 1_000_000
INTERVAL_MS = 200


def departures(ends_ms: Sequence[int], until_ms: int) -> list[tuple[int, int | None]]:
    """(when one left, the end of its newest step) of a sender that looks every millisecond."""
    clock, newest, out = Departures(INTERVAL_MS / 1e3, 0), None, []
    before = 0
    for now in range(until_ms):
        if now in ends_ms:
            clock.step_ended((now - before) / 1e3, now * MS)
            before = newest = now
        if now * MS >= clock.leaves_ns():
            out.append((now, newest))
            clock.left(now * MS)
            newest = None
    return out


def test_one_that_is_due_leaves_as_a_step_ends() -> None:
    assert departures(range(14, 1000, 14), 700) == [(210, 210), (420, 420), (630, 630)]


def test_without_steps_it_leaves_with_what_there_is() -> None:
    assert departures([], 700) == [(300, None), (600, None)]


def test_before_a_long_step_the_others_leave_early() -> None:
    """Steps of 10 ms, and from 150 on one of 400 ms."""
    short, again = list(range(10, 151, 10)), list(range(550, 800, 10))
    assert departures([*short, *again], 700) == [(170, 150), (470, None), (670, 670)]


def test_early_is_not_before_half_the_interval() -> None:
    assert departures([10, 20, 30], 301) == [(100, 30)]


def test_equal_steps_are_not_long_however_slow() -> None:
    """Each of 90 ms: an envelope leaves with a step and never beside a running one."""
    assert departures(range(90, 2000, 90), 1000) == [(270, 270), (540, 540), (810, 810)]


@pytest.mark.parametrize("steps_ms", [7, 14, 40, 110, 190])
def test_no_step_waits_longer_than_one_of_its_kind(steps_ms: int) -> None:
    left = departures(range(steps_ms, 5000, steps_ms), 4000)
    assert all(newest is not None and at - newest <= 2 * steps_ms for at, newest in left)
    assert min(b - a for (a, _), (b, _) in pairwise(left)) >= INTERVAL_MS // 2
