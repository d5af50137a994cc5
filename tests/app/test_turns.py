"""When a view is made again, and whether all of it."""

from __future__ import annotations

import pytest

from app.live.turns import LATE_S, LEAST_S, MOST_S, SHARE, WHOLE_S, Turns, Whole

MS = 1_000_000


@pytest.mark.parametrize(
    ("took_s", "interval_s"), [(0.0, LEAST_S), (0.1, 0.1 / SHARE), (9.0, MOST_S)]
)
def test_turns_come_at_an_interval_on_average(took_s: float, interval_s: float) -> None:
    turns, taken = Turns(), []
    for at_ms in range(10_000):
        if at_ms * MS >= turns.next_ns():
            turns.take(at_ms * MS, took_s)
            taken.append(at_ms)
    assert taken[:2] == [0, 1]  # one in advance
    assert len(taken) == pytest.approx(1 + 10 / interval_s, abs=1)


def test_one_that_is_late_has_waited_for_its_turn() -> None:
    turns = Turns()
    turns.take(0, 0.0)
    assert turns.late_ns() == LATE_S * 1e9
    turns.take(0, 9.0)
    assert turns.late_ns() == MOST_S * 1e9


def test_what_leads_is_enough_while_the_rest_is_young() -> None:
    whole = Whole()
    assert not whole.enough(0, "a")  # nothing was made yet
    whole.made(0, "a", lead_only=False)
    until = round(WHOLE_S * 1e9)
    assert whole.enough(until - 1, "a")
    assert not whole.enough(until, "a")
    assert not whole.enough(1, "b")  # somebody has changed the engine


def test_the_rest_follows_although_nothing_changes() -> None:
    whole, overdue = Whole(), round((WHOLE_S + LATE_S) * 1e9)
    whole.made(0, "a", lead_only=False)
    assert not whole.overdue(10 * overdue)  # nothing is owed
    whole.made(MS, "a", lead_only=True)
    assert not whole.overdue(overdue - 1)
    assert whole.overdue(overdue)
    whole.made(overdue, "a", lead_only=False)
    assert not whole.overdue(10 * overdue)
