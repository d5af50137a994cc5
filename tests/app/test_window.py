"""The window of steps: newest, chosen, and what an address can say that no run has."""

from __future__ import annotations

import pytest

from app.panels.window import Window, window
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.synthetic import RUN_ID, Simulation


def bounds(reader: Reader, first: int, last: int) -> tuple[int, int]:
    sql = (
        "SELECT min(t_start_ns) AS starts, "
        "max(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT)) AS ends "
        "FROM steps WHERE run_id = $run AND step BETWEEN $first AND $last"
    )
    row = reader.row(sql, {"run": RUN_ID, "first": first, "last": last})
    assert row is not None
    return row["starts"], row["ends"]


def found(reader: Reader, **params: str) -> Window:
    made = window(reader, RUN_ID, params, 2.0)
    assert made is not None
    return made


def test_without_a_choice_it_follows_the_newest_seconds(reader: Reader) -> None:
    made = found(reader)
    assert made.follows
    assert made.last_step == 967
    assert made.span_s == 2.0
    start, end = bounds(reader, made.first_step, made.last_step)
    assert made.end_ns == end
    assert start >= made.start_ns > bounds(reader, made.first_step - 1, made.last_step)[0]


def test_a_choice_stays_and_reaches_from_its_first_start_to_its_last_end(reader: Reader) -> None:
    made = found(reader, first="100", last="140")
    assert (made.first_step, made.last_step, made.follows) == (100, 140, False)
    assert (made.start_ns, made.end_ns) == pytest.approx(bounds(reader, 100, 140), abs=1)


@pytest.mark.parametrize(
    ("first", "last", "steps"),
    [
        ("140", "100", (100, 140)),
        ("-5", "3", (0, 3)),
        ("960", "99999", (960, 967)),
        ("5000", "6000", (967, 967)),
        ("7", "7", (7, 7)),
    ],
)
def test_numbers_are_put_right_and_cut(
    reader: Reader, first: str, last: str, steps: tuple[int, int]
) -> None:
    made = found(reader, first=first, last=last)
    assert (made.first_step, made.last_step) == steps


@pytest.mark.parametrize("params", [{"first": "3"}, {"first": "x", "last": "4"}, {"last": ""}])
def test_half_a_choice_is_none(reader: Reader, params: dict[str, str]) -> None:
    assert found(reader, **params).follows


def test_a_run_without_steps_has_no_window(store: Store) -> None:
    Simulation().write(store)
    assert window(store.reader(), RUN_ID, {}, 2.0) is None
    assert window(store.reader(), RUN_ID, {"first": "1", "last": "2"}, 2.0) is None


def test_one_long_step_is_in_the_newest_window_though_it_began_before(store: Store) -> None:
    simulation = Simulation()
    simulation.arrive(1)
    simulation.advance()
    simulation.write(store)
    made = window(store.reader(), RUN_ID, {}, 1e-6)
    assert made is not None
    assert (made.first_step, made.last_step) == (0, 0)
