"""A clock that a cost model moves: with nobody waiting, and held to real time."""

from __future__ import annotations

import pytest

from engine import clock as clocks
from engine.clock import REAL_CLOCK, ModelledClock
from engine.pace import PaceMeter
from telemetry.clock import NS_PER_S
from telemetry.clock import now_ns as real_ns

START = 1_000 * NS_PER_S
MS = 1_000_000


class RealTime:
    """Real time that only passes when told, or when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = START, 0.0
        monkeypatch.setattr(clocks, "now_ns", lambda: self.now)
        monkeypatch.setattr(clocks, "sleep_s", self._sleep)
        monkeypatch.setattr("engine.pace.now_ns", lambda: self.now)

    def _sleep(self, duration_s: float) -> None:
        assert duration_s > 0
        self.slept += duration_s
        self.now += round(duration_s * NS_PER_S)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> RealTime:
    return RealTime(monkeypatch)


def test_a_real_clock_is_the_machines(real: RealTime) -> None:
    assert REAL_CLOCK.now_ns() == START
    assert REAL_CLOCK.until_s(START + NS_PER_S) == 1.0
    REAL_CLOCK.idled(START + NS_PER_S)
    assert REAL_CLOCK.now_ns() == START
    assert REAL_CLOCK.at(5) == 5


def test_a_clock_that_nobody_watches_waits_for_nothing(real: RealTime) -> None:
    clock = ModelledClock(START, paced=False)
    clock.advance(2.0)
    assert clock.until_s(START + 100 * NS_PER_S) == 0
    clock.idled(START + 100 * NS_PER_S)
    assert clock.now_ns() == START + 100 * NS_PER_S
    clock.idled(START)
    clock.idled(None)
    assert clock.now_ns() == START + 100 * NS_PER_S, "never back, and nothing to jump to"
    assert (real.slept, clock.lag_s, clock.at(START)) == (0, 0, clock.now_ns())


@pytest.mark.parametrize("duration_s", [0.0, 1e-9, 0.00547, 1 / 3, 4.4813e-3])
def test_no_step_is_shorter_than_its_floor(real: RealTime, duration_s: float) -> None:
    clock = ModelledClock(START, paced=False)
    clock.advance(duration_s)
    assert duration_s < (clock.now_ns() - START) / NS_PER_S <= duration_s + 2e-9


def test_a_paced_clock_sleeps_what_python_left(real: RealTime) -> None:
    clock = ModelledClock(START, paced=True)
    for _ in range(200):
        real.now += MS  # what scheduling and recording took
        clock.advance(100e-6)
        clock.advance(5e-3)
    assert real.now - START == pytest.approx(200 * 5.1 * MS, abs=MS)
    assert real.slept == pytest.approx(200 * 4.1e-3, rel=0.01)
    assert clock.lag_s < 1e-3


def test_a_clock_that_cannot_keep_up_says_by_how_much(real: RealTime) -> None:
    clock = ModelledClock(START, paced=True)
    meter = PaceMeter(clock)
    told = []
    for _ in range(2_000):
        real.now += 10 * MS
        clock.advance(8e-3)
        told.append(meter.look())
    paces = [pace for pace in told if pace]
    assert len(paces) == 20, "once a second of real time"
    assert paces[-1].behind == pytest.approx(0.2, abs=0.01)
    assert paces[-1].lag_s == pytest.approx(3.8, abs=0.05)
    assert clock.lag_s == pytest.approx(4.0, abs=0.05)
    assert real.slept == 0


def test_a_short_stop_is_made_up_for_and_a_long_one_is_not(real: RealTime) -> None:
    clock = ModelledClock(START, paced=True)
    real.now += NS_PER_S // 4
    _steps(clock, real, 200)
    assert clock.lag_s < 2e-3, "caught up"
    real.now += 600 * NS_PER_S
    slept = real.slept
    _steps(clock, real, 1_000)
    assert real.slept - slept > 3.0, "no rush through ten minutes"
    assert clock.lag_s == pytest.approx(599.5, abs=0.1)


def _steps(clock: ModelledClock, real: RealTime, count: int) -> None:
    for _ in range(count):
        real.now += MS
        clock.advance(5e-3)


def test_idle_time_passes_as_it_does(real: RealTime) -> None:
    clock = ModelledClock(START, paced=True)
    assert clock.until_s(START + NS_PER_S) == 1.0
    real.now += NS_PER_S // 2
    clock.idled(START + NS_PER_S)
    assert clock.now_ns() == real.now
    clock.idled(None)
    assert (clock.now_ns(), clock.lag_s) == (real.now, 0)


def test_lag_never_looks_like_a_queue(real: RealTime) -> None:
    """What is due while the clock is behind is met at its own time, not at real time."""
    clock = ModelledClock(START, paced=True)
    real.now += 30 * NS_PER_S
    clock.advance(1e-3)
    due = START + 10 * NS_PER_S
    assert clock.until_s(due) < 0
    clock.idled(due)
    assert clock.now_ns() == due
    assert clock.lag_s == pytest.approx(20)
    clock.idled(None)
    assert clock.lag_s == 0


def test_what_came_from_outside_is_never_in_the_future(real: RealTime) -> None:
    clock = ModelledClock(START, paced=True)
    clock.advance(1.0)
    assert clock.at(real.now - MS) == real.now - MS
    assert clock.at(real.now + 5 * NS_PER_S) == clock.now_ns()
    real.now += 4 * NS_PER_S
    assert clock.at(real.now) == clock.now_ns(), "a prompt just now arrives now"
    assert clock.at(real.now - MS) == clock.now_ns() - MS


def test_the_clock_really_sleeps() -> None:
    before = real_ns()
    clock = ModelledClock(before, paced=True)
    clock.advance(0.02)
    assert real_ns() - before >= 20 * MS
