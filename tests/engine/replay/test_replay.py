"""Recorded arrivals through the real engine: the same schedule, time and end as it would have."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from engine.errors import UserError
from engine.replay.arrivals import Arrivals
from engine.replay.fit import fit_steps
from engine.replay.prompts import prompt
from engine.replay.recording import MAX_KV_BLOCKS, Arrival, Settings
from engine.replay.replay import Outcome, replay
from engine.schedulers.static import WINDOW_NS
from engine.workloads.workload import Piece
from tests.engine.replay.machine import (
    CONTINUOUS,
    PEAK_BANDWIDTH,
    PEAK_FLOPS,
    Machine,
    arrivals,
    blank,
    recorded,
    run,
)

MACHINE = Machine()
T0 = 10**12


def made(outcome: Outcome) -> Counter[int]:
    """Tokens by request."""
    return Counter(r for m in outcome.tokens for r in m.request_ids)


def end_ns(outcome: Outcome) -> int:
    return max(r.finished_ns or 0 for r in outcome.requests.values())


@pytest.mark.parametrize("scheduler", ["no-batching", "static", "continuous", "chunked"])
def test_every_request_gets_its_tokens_once(scheduler: str) -> None:
    asked = arrivals(40)
    outcome = run(blank(asked), CONTINUOUS.changed(scheduler=scheduler), MACHINE)
    assert made(outcome) == {i: a.output_tokens for i, a in enumerate(asked)}
    assert [r.arrived_ns for r in outcome.requests.values()] == [a.due_ns for a in asked]
    assert all(r.finish_reason == "length" for r in outcome.requests.values())
    assert {s.scheduler for s in outcome.steps} == {scheduler}


def test_a_step_takes_the_machines_time() -> None:
    asked = (Arrival(T0, 100, 3),)
    outcome = run(blank(asked), CONTINUOUS, MACHINE)
    total = sum(s.t_step_s for s in outcome.steps)
    assert end_ns(outcome) - T0 == pytest.approx(total * 1e9, abs=10)
    assert [s.phase for s in outcome.steps] == ["prefill", "decode", "decode"]


def test_idle_time_passes_at_once_and_counts() -> None:
    asked = (Arrival(T0, 10, 2), Arrival(T0 + 3_600 * 10**9, 10, 2))
    outcome = run(blank(asked), CONTINUOUS, MACHINE)
    second = outcome.requests[1]
    assert second.admitted_ns == asked[1].due_ns
    assert second.first_token_ns is not None
    assert second.first_token_ns - second.arrived_ns < 10**9


def test_static_waits_for_its_window() -> None:
    outcome = run(blank((Arrival(T0, 10, 2),)), CONTINUOUS.changed(scheduler="static"), MACHINE)
    assert outcome.requests[0].admitted_ns == T0 + WINDOW_NS


@pytest.mark.parametrize("other", ["chunked", "static", "no-batching"])
def test_predictions_are_what_the_machine_then_does(other: str) -> None:
    """The whole path: record under continuous, fit, replay under another; all within 2%."""
    recording = recorded(blank(arrivals(150, rate=7.0)), MACHINE)
    model = fit_steps(recording.steps, PEAK_FLOPS, PEAK_BANDWIDTH)
    asked = CONTINUOUS.changed(scheduler=other, chunk_tokens=64)
    guess, truth = replay(recording, asked, model), run(recording, asked, MACHINE)
    assert end_ns(guess) - T0 == pytest.approx(end_ns(truth) - T0, rel=0.02)
    assert longest(guess) == pytest.approx(longest(truth), rel=0.05)
    assert len(guess.steps) == pytest.approx(len(truth.steps), rel=0.05)
    was = run(recording, CONTINUOUS, MACHINE)
    assert abs(longest(was) / longest(truth) - 1) > 0.2, "the schedulers must differ to tell"


def longest(outcome: Outcome) -> float:
    return max(s.t_step_s for s in outcome.steps)


# --- closed loops ---


def test_a_closed_loop_keeps_its_streams_busy_and_no_more() -> None:
    asked = tuple(Arrival(T0, 20, 5, streams=3) for _ in range(12))
    outcome = run(blank(asked), CONTINUOUS, MACHINE)
    assert max(s.n_running for s in outcome.steps) == 3
    assert len(made(outcome)) == 12
    arrived = sorted(r.arrived_ns for r in outcome.requests.values())
    assert arrived[:3] == [T0] * 3
    assert arrived[3] > T0, "the fourth came when one of the first had ended"


def test_a_faster_engine_serves_a_closed_loop_sooner() -> None:
    recording = blank(tuple(Arrival(T0, 20, 5, streams=3) for _ in range(12)))
    slow, fast = (run(recording, CONTINUOUS, Machine(overhead_s=o)) for o in (0.1, 0.001))
    assert end_ns(fast) - T0 < 0.2 * (end_ns(slow) - T0)


def test_a_loop_waits_for_its_load_and_a_person_does_not() -> None:
    loop = [Arrival(T0 + 10**9, 20, 2, streams=1)] * 2
    due = Arrivals([Arrival(T0, 5, 1), *loop])
    assert [n for n, _, _ in due.due(T0)] == [0]
    assert due.next_ns(T0) == T0 + 10**9
    assert [n for n, _, _ in due.due(T0 + 10**9)] == [1]
    assert due.next_ns(T0 + 10**9) is None, "the next comes when the first ends"
    due.ended(1)
    assert [(n, at) for n, _, at in due.due(T0 + 2 * 10**9)] == [(2, T0 + 2 * 10**9)]


# --- blocks and prompts ---


def test_few_blocks_preempt_and_still_end() -> None:
    asked = tuple(Arrival(T0, 60, 60) for _ in range(8))
    outcome = run(blank(asked), CONTINUOUS.changed(kv_blocks=20), MACHINE)
    assert sum(s.preemptions for s in outcome.steps) > 0
    assert sum(made(outcome).values()) == 8 * 60
    assert max(s.kv_blocks_used for s in outcome.steps) <= 20


def test_a_request_that_can_never_fit_is_named() -> None:
    with pytest.raises(UserError, match="need 8 KV blocks of 16, but the cache has 4"):
        run(blank((Arrival(T0, 60, 60),)), CONTINUOUS.changed(kv_blocks=4), MACHINE)


def test_a_huge_cache_costs_nothing() -> None:
    outcome = run(blank(arrivals(5)), CONTINUOUS.changed(kv_blocks=MAX_KV_BLOCKS), MACHINE)
    assert len(made(outcome)) == 5


def test_prompts_share_what_is_known_to_be_shared() -> None:
    system = Piece("system", 50)
    one, two = (Arrival(T0, 80, 2, pieces=(system, Piece(name, 20))) for name in ("a", "b"))
    first, second = prompt(0, one), prompt(1, two)
    assert (len(first), len(second)) == (80, 80)
    assert first[:50] == second[:50]
    assert not set(first[50:]) & set(second[50:])
    assert prompt(2, replace(one, prompt_tokens=30)) == first[:30]
    assert not set(prompt(3, Arrival(T0, 80, 2))) & set(first)


@pytest.mark.parametrize("cache", [False, True])
def test_the_prefix_cache_finds_what_is_shared(cache: bool) -> None:
    asked = tuple(
        Arrival(T0 + i * 10**9, 80, 2, pieces=(Piece("system", 64), Piece(f"{i}", 16)))
        for i in range(6)
    )
    outcome = run(blank(asked), CONTINUOUS.changed(prefix_cache=cache), MACHINE)
    assert [r.cached_tokens for r in outcome.requests.values()] == [0] + [64 * cache] * 5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scheduler": "dynamic"}, "unknown scheduler 'dynamic'"),
        ({"max_batch": 0}, "max batch is 0: use 1 to"),
        ({"chunk_tokens": -1}, "token budget is -1: use 1 to"),
        ({"kv_blocks": 0}, "KV blocks is 0: use 1 to 10,000,000"),
    ],
)
def test_settings_that_cannot_be(change: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Settings("continuous", 4, 64, 100, False).changed(**change)
