"""A ramp climbs by itself, stands still while paused, and ends where anybody commands the load."""

from __future__ import annotations

import threading

import pytest

from app.ramp import Ramp, Ramps
from engine.errors import UserError
from tests.process.waiting import until

LEVELS = (1, 2, 4)


class Engine:
    """Hears levels; `told` holds each that was asked for."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.paused = False
        self.ramps = Ramps(lambda workload, n: self.told.append((workload, n)), lambda: self.paused)


def threads() -> int:
    return sum(thread.name == "ramp" for thread in threading.enumerate())


def over() -> bool:
    return threads() == 0


def test_it_asks_for_one_level_after_the_other_and_stays_at_the_last() -> None:
    engine = Engine()
    engine.ramps.start(Ramp("steady", LEVELS, hold_s=0.05))
    assert engine.told == [("steady", 1)]
    until(over, "the end of the ramp", 10)
    assert engine.told == [("steady", 1), ("steady", 2), ("steady", 4)]


def test_a_level_of_one_stands_by_itself() -> None:
    engine = Engine()
    engine.ramps.start(Ramp("steady", (8,), hold_s=0.01))
    assert over()
    assert engine.told == [("steady", 8)]


def test_once_ended_it_asks_for_nothing_more() -> None:
    engine = Engine()
    engine.ramps.start(Ramp("steady", LEVELS, hold_s=0.2))
    engine.ramps.end()
    until(over, "the end of the ramp", 10)
    assert engine.told == [("steady", 1)]


def test_another_ramp_takes_its_place() -> None:
    engine = Engine()
    engine.ramps.start(Ramp("steady", LEVELS, hold_s=60.0))
    engine.ramps.start(Ramp("skew", (3, 5), hold_s=0.05))
    until(over, "the end of both", 10)
    assert engine.told == [("steady", 1), ("skew", 3), ("skew", 5)]


def test_its_clock_stands_still_while_the_engine_is_paused() -> None:
    engine = Engine()
    engine.paused = True
    looked = threading.Semaphore(0)
    ramps = Ramps(
        lambda workload, n: engine.told.append((workload, n)),
        lambda: looked.release() or engine.paused,
    )
    ramps.start(Ramp("steady", (1, 2), hold_s=0.02))
    for _ in range(5):  # each look is a fifth of what it has to hold, or more
        assert looked.acquire(timeout=10)
    assert engine.told == [("steady", 1)]
    engine.paused = False
    until(over, "the end of the ramp", 10)
    assert engine.told == [("steady", 1), ("steady", 2)]


@pytest.mark.parametrize(("levels", "hold_s"), [((), 1.0), ((0, 2), 1.0), ((1, 2), 0.0)])
def test_what_is_no_ramp_is_refused(levels: tuple[int, ...], hold_s: float) -> None:
    with pytest.raises(UserError, match="a ramp"):
        Ramp("steady", levels, hold_s)
