"""A session drives a real engine process: pause, single steps, switches, cancel, and its death."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest

from app.wiring import Answer, Session
from engine.config import EngineConfig
from engine.workloads import load_workload
from engine.workloads.generator import _poisson
from telemetry.clock import sleep_s
from tests.process.waiting import ended, until

pytestmark = pytest.mark.process
QUIET_S = 0.5
SCHEDULERS = ("static", "no-batching", "continuous", "chunked")
USUAL: dict[str, Any] = {
    "scheduler": "continuous",
    "max_batch": 4,
    "chunk_tokens": 256,
    "prefix_cache": False,
}


@pytest.fixture(scope="module")
def config(tiny_model: Path) -> EngineConfig:
    return EngineConfig(str(tiny_model), dtype="fp32", max_batch=4, threads=1, live=True)


@pytest.fixture(scope="module")
def shared(config: EngineConfig) -> Iterator[Session]:
    """One engine for the module, since each takes seconds to start."""
    session = Session(config, None)
    _ready(session)
    yield session
    session.close()


@pytest.fixture
def session(shared: Session) -> Iterator[Session]:
    """The engine at rest: nothing runs, nothing arrives, continuous, not paused."""
    yield shared
    shared.stop_load()
    shared.resume()
    at_rest = "SELECT count(*) = 0 FROM requests WHERE finished_ns IS NULL"
    until(lambda: _value(shared, at_rest), "the engine to finish its requests")
    assert shared.ready is not None
    usual = {**USUAL, "kv_blocks": shared.ready.limits["kv_blocks_capacity"]}
    shared.configure(**usual)
    until(lambda: usual.items() <= asdict(shared.status).items(), "its usual settings")


def _ready(session: Session) -> None:
    until(lambda: session.phase != "starting", "the engine to start", 120)
    assert session.phase == "ready", session.failure


def _rows(session: Session, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    with session.store.reader() as reader:
        return reader.rows(sql, parameters)


def _value(session: Session, sql: str, *parameters: object) -> Any:
    return _rows(session, sql, *parameters)[0][0]


def _steps(session: Session) -> int:
    return int(_value(session, "SELECT count(*) FROM steps"))


def _requests(session: Session) -> int:
    return int(_value(session, "SELECT count(*) FROM requests"))


def _paused(session: Session) -> None:
    session.pause()
    until(lambda: session.status and session.status.paused, "the engine to pause")
    sleep_s(QUIET_S)  # what it did before is committed by then


def _answer(session: Session, ticket: str) -> Answer:
    answer = session.answer(ticket)
    assert answer is not None
    return answer


def _done(session: Session, ticket: str) -> Answer:
    until(lambda: _answer(session, ticket).done, "the answer")
    return _answer(session, ticket)


# --- pause and single steps ---


def test_pause_stops_steps_arrivals_and_the_clock_of_the_load(session: Session) -> None:
    """Arrivals are the Poisson instants of the seed, moved by exactly the time of the pause."""
    first = _requests(session)
    session.load("steady", rate=20.0, seed=3)
    until(lambda: _requests(session) > first + 4, "some requests")
    _paused(session)
    before = _steps(session), _requests(session)
    sleep_s(QUIET_S)
    assert (_steps(session), _requests(session)) == before
    session.resume()
    until(lambda: _requests(session) > before[1] + 5, "requests after the pause")
    session.stop_load()
    (pause,), (resume,) = (
        _rows(session, "SELECT t_ns FROM events WHERE kind = ? ORDER BY t_ns DESC LIMIT 1", kind)
        for kind in ("pause", "resume")
    )
    arrived = _rows(
        session, "SELECT arrived_ns FROM requests ORDER BY request_id LIMIT 11 OFFSET ?", first
    )
    clock = [t - (resume[0] - pause[0] if t > pause[0] else 0) for (t,) in arrived]
    assert not any(pause[0] < t < resume[0] for (t,) in arrived)
    planned = [b - a for a, b in pairwise(islice(_poisson(20.0, 3), len(clock)))]
    assert [b - a for a, b in pairwise(clock)] == pytest.approx([g * 1e9 for g in planned], abs=2)


def test_the_process_is_sampled_while_steps_run_and_not_while_paused(session: Session) -> None:
    """No GPU runs the steps here, so nothing is reported of one."""
    before = _value(session, "SELECT count(*) FROM device_samples")
    session.load("steady", rate=20.0, seed=4)
    samples = "SELECT * EXCLUDE (run_id) FROM device_samples OFFSET ?"
    until(lambda: len(_rows(session, samples, before)) > 1, "two samples")
    _paused(session)
    found = _rows(session, samples, before)
    (started_ns,) = _rows(session, "SELECT started_ns FROM runs")[0]
    times = [row[0] for row in found]
    assert times == sorted(times)
    assert times[0] > started_ns
    assert all(b - a > 0.9e9 for a, b in pairwise(times))
    assert all(row[1:6] == (None,) * 5 and row[6] > 0 for row in found)
    sleep_s(1.2)  # longer than from one sample to the next
    assert _rows(session, samples, before) == found


def test_a_single_step_is_one_step(session: Session) -> None:
    session.load("steady", concurrency=2)
    until(lambda: _value(session, "SELECT count(*) > 0 FROM steps"), "a first step")
    _paused(session)
    for _ in range(3):
        before = _steps(session)
        session.step_once()
        until(lambda n=before: _steps(session) > n, "the step")  # type: ignore[misc]
        sleep_s(QUIET_S)
        assert _steps(session) == before + 1
    assert session.status is not None
    assert session.status.paused


# --- switching ---


def _outputs(session: Session, first: int) -> list[tuple[int, list[int]]]:
    """Of the requests from `first` on, in workload order: number and token ids."""
    rows = _rows(
        session,
        'SELECT request_id - ?, list(token_id ORDER BY "index") FROM tokens '
        "WHERE request_id >= ? GROUP BY request_id ORDER BY request_id",
        first,
        first,
    )
    return [(number, tokens) for number, tokens in rows]


def _run_skew(session: Session, act: Callable[[], None]) -> list[tuple[int, list[int]]]:
    first, done = _requests(session), session.finished_requests
    _paused(session)
    session.load("skew", requests=40)
    act()
    session.resume()
    until(lambda: session.finished_requests == done + 40, "40 requests", 120)
    session.store.flush()
    until(lambda: len(_outputs(session, first)) == 40, "their tokens")
    sleep_s(QUIET_S)
    return _outputs(session, first)


def test_fifty_switches_in_one_run_lose_no_request_and_change_no_token(session: Session) -> None:
    def switch() -> None:
        for k in range(50):
            session.configure(scheduler=SCHEDULERS[k % 4])
            session.step_once()

    plain = _run_skew(session, lambda: None)
    before = _steps(session)
    switched = _run_skew(session, switch)
    wanted = [item.output_tokens for item in load_workload("skew", seed=0, requests=40).items]
    assert [len(tokens) for _, tokens in switched] == wanted
    assert switched == plain
    used = _rows(session, "SELECT scheduler FROM steps WHERE step >= ? ORDER BY step", before)
    assert [name for (name,) in used[:50]] == [SCHEDULERS[k % 4] for k in range(50)]
    marks = "SELECT count(*) FROM events WHERE kind = 'scheduler_switch' AND step >= ?"
    assert _value(session, marks, before - 1) >= 50


def test_a_new_batch_size_takes_effect_and_loses_no_request(session: Session) -> None:
    session.configure(max_batch=2)
    outputs = _run_skew(session, lambda: session.configure(max_batch=7))
    session.configure(max_batch=4)
    assert [len(tokens) for _, tokens in outputs].count(180) == 4
    assert _value(session, "SELECT max(n_running) FROM steps WHERE batch_slots = 7") == 7


# skew's longest request needs 16 blocks; 30 are too few for all that run at once.
CHANGES: tuple[dict[str, Any], ...] = (
    {"scheduler": "chunked", "chunk_tokens": 7},
    {"prefix_cache": True},
    {"kv_blocks": 30},
    {"scheduler": "continuous", "max_batch": 8},
    {"scheduler": "chunked", "chunk_tokens": 64},
    {"prefix_cache": False},
    {"max_batch": 4},
)


def test_every_setting_changes_while_it_runs_and_no_token_does(session: Session) -> None:
    def change() -> None:
        for change in (*CHANGES, *CHANGES):
            session.configure(**change)
            for _ in range(4):
                session.step_once()

    plain = _run_skew(session, lambda: None)
    before = _steps(session)
    assert _run_skew(session, change) == plain
    assert not session.rejections
    status = session.status
    assert status is not None
    now = (status.scheduler, status.max_batch, status.chunk_tokens, status.prefix_cache)
    assert (*now, status.kv_blocks) == ("chunked", 4, 64, False, 30)
    kinds = _rows(session, "SELECT DISTINCT kind FROM events WHERE step >= ?", before - 1)
    assert {kind for (kind,) in kinds} >= {
        *("scheduler_switch", "max_batch", "chunk_tokens", "prefix_cache", "kv_blocks", "preempt")
    }
    most = "SELECT max(kv_blocks_used) <= 30, sum(preemptions) > 0 FROM steps WHERE step > ?"
    assert _rows(session, most, before + 12) == [(True, True)]


def test_each_change_is_marked_with_what_was_before(session: Session) -> None:
    assert session.ready is not None
    capacity = session.ready.limits["kv_blocks_capacity"]
    session.configure(scheduler="chunked", chunk_tokens=32, prefix_cache=True, kv_blocks=100)
    session.configure(chunk_tokens=32)  # nothing new: no mark
    until(lambda: session.status and session.status.kv_blocks == 100, "the change")
    newest = "SELECT kind, detail FROM events ORDER BY t_ns DESC, rowid DESC LIMIT 4"
    wanted = {
        "scheduler_switch": ("continuous", "chunked"),
        "chunk_tokens": (256, 32),
        "prefix_cache": (False, True),
        "kv_blocks": (capacity, 100),
    }
    expected = {kind: {"from": old, "to": new} for kind, (old, new) in wanted.items()}
    until(
        lambda: {kind: json.loads(d) for kind, d in _rows(session, newest)} == expected,
        "four marks",
    )


# --- people's prompts ---


def test_a_prompt_is_answered(session: Session) -> None:
    ticket = session.submit_text("Say something.", max_tokens=12)
    answer = _done(session, ticket)
    assert answer.error is None
    assert answer.reason in ("length", "stop")
    assert answer.text
    again = _done(session, session.submit_text("Say something.", max_tokens=12))
    assert again.text == answer.text


def test_a_prompt_longer_than_the_context_is_refused_in_one_line(session: Session) -> None:
    answer = _done(session, session.submit_text("word " * 700))
    assert answer.reason == "refused"
    assert answer.error is not None
    assert "but the model's context is 512: shorten the prompt" in answer.error
    assert "\n" not in answer.error


@pytest.mark.parametrize("steps", [0, 3])
def test_a_prompt_is_cancelled_while_it_waits_and_while_it_runs(
    session: Session, steps: int
) -> None:
    _paused(session)
    ticket = session.submit_text("Tell me everything.", max_tokens=300)
    until(lambda: _answer(session, ticket).request_id is not None, "the prompt to be accepted")
    for _ in range(steps):
        session.step_once()
    request = _answer(session, ticket).request_id
    held = "SELECT count(*) FROM tokens WHERE request_id = ?"
    until(lambda: _value(session, held, request) == steps, "its tokens")
    session.cancel(ticket)
    assert _done(session, ticket).reason == "cancelled"
    state = "SELECT finish_reason, output_tokens FROM requests WHERE request_id = ?"
    until(lambda: _rows(session, state, request) == [("cancelled", steps)], "its record")
    session.resume()
    assert _done(session, session.submit_text("And now?", max_tokens=3)).error is None


def test_commands_that_cannot_be_change_nothing(session: Session) -> None:
    before = session.status
    session.rejections.clear()
    session.configure(scheduler="fifo")
    session.configure(max_batch=0)
    session.configure(scheduler="chunked", chunk_tokens=0)
    session.configure(prefix_cache=True, kv_blocks=10**12)
    session.load("heavy")
    until(lambda: len(session.rejections) == 5, "five refusals")
    assert [r.command for r in session.rejections] == [*["Configure"] * 4, "Load"]
    assert "use one of chunked, continuous, no-batching" in session.rejections[0].message
    assert "token budget is 0: use 1 to" in session.rejections[2].message
    assert "KV blocks is 1000000000000: use 1 to" in session.rejections[3].message
    session.rejections.clear()
    assert session.status == before


# --- ends ---


@pytest.mark.parametrize("when", ["starting", "ready"])
def test_an_engine_that_is_killed_is_noticed_and_leaves_the_session_usable(
    config: EngineConfig, tmp_path: Path, when: str
) -> None:
    session = Session(config, tmp_path / "killed.duckdb")
    if when == "ready":
        _ready(session)
        session.load("steady", concurrency=2)
        until(lambda: _steps(session) > 20, "some steps")
    os.kill(session.engine_pid, signal.SIGKILL)
    until(lambda: session.phase == "failed", "the failure to be noticed", 10)
    assert session.failure == "the engine ended by itself (exit code -9); restart Stepscope"
    assert not session.user_error
    session.pause()  # is said in vain, and harms nothing
    assert _steps(session) > 20 if when == "ready" else _steps(session) == 0
    session.close()
    with duckdb.connect(tmp_path / "killed.duckdb", read_only=True) as file:
        assert len(file.execute("SELECT run_id FROM runs").fetchall()) == (when == "ready")


PAUSED = """
import sys
from pathlib import Path
from app.wiring import Session
from engine.config import EngineConfig
session = Session(EngineConfig(sys.argv[1], dtype="fp32", threads=1, live=True), None)
while session.status is None or not session.status.paused:
    session.wait(0.1)
    if session.phase == "ready":
        session.pause()
print(session.engine_pid, flush=True)
sys.stdin.read()
"""


def test_a_paused_engine_ends_with_its_killed_owner(tiny_model: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", PAUSED, tiny_model], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    engine = int(owner.stdout.readline())
    assert not ended(engine)
    owner.kill()
    owner.wait()
    until(lambda: ended(engine), "the paused engine to end by itself", 5)
