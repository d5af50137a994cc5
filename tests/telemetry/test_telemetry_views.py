"""The metrics against sums by hand, and the latency clocks against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_records import Message, a_request, a_run, a_step, an_event

from telemetry.batches import table_of, token_table
from telemetry.store import Store
from telemetry.views import FOREVER_NS


def a_run_of(
    store: Store,
    *,
    requests: Sequence[Any] = (),
    tokens: Sequence[Message] = (),
    events: Sequence[Any] = (),
    steps: Sequence[Any] = (),
    **run: Any,
) -> str:
    run_id = store.start_run(a_run(**run))
    tables = {"requests": requests, "events": events, "steps": steps}
    rows = {name: table_of(name, records) for name, records in tables.items()}
    store.append(run_id, {**rows, "tokens": token_table(tokens)})
    store.flush()
    return run_id


def row(store: Store, view: str, run_id: str) -> dict[str, Any]:
    found = store.reader().row(f"SELECT * FROM {view} WHERE run_id = ?", [run_id])
    assert found is not None
    return found


def pauses_and_resumes(*kinds: tuple[int, str]) -> list[Any]:
    return [an_event(t_ns, kind) for t_ns, kind in kinds]


# --- pauses ---


def test_pauses_carry_the_time_paused_before(memory: Store) -> None:
    events = pauses_and_resumes((10, "pause"), (14, "resume"), (20, "pause"), (27, "resume"))
    run_id = a_run_of(memory, events=[*events, an_event(30, "pause"), an_event(12, "load")])
    sql = "SELECT start_ns, end_ns, paused_before_ns FROM pauses WHERE run_id = ? ORDER BY 1"
    expected = [(10, 14, 0), (20, 27, 4), (30, FOREVER_NS, 11)]
    assert memory.reader().rows(sql, [run_id]) == expected


def test_a_second_pause_and_a_lone_resume_change_nothing(memory: Store) -> None:
    events = pauses_and_resumes(
        (5, "resume"), (10, "pause"), (12, "pause"), (15, "resume"), (18, "resume")
    )
    run_id = a_run_of(memory, events=events)
    sql = "SELECT start_ns, end_ns, paused_before_ns FROM pauses WHERE run_id = ?"
    assert memory.reader().rows(sql, [run_id]) == [(10, 15, 0)]


def test_pauses_of_one_run_do_not_touch_another(memory: Store) -> None:
    a_run_of(memory, events=pauses_and_resumes((0, "pause"), (90, "resume")))
    tokens = [Message(0, 10, [1], [0], [5]), Message(1, 40, [1], [1], [6])]
    assert row(memory, "itl", a_run_of(memory, tokens=tokens))["itl_ns"] == 30


def overlap(start: int, end: int, toggles: Sequence[int]) -> int:
    """Nanoseconds of [start, end) inside pauses: toggles are pause, resume, pause, … in order."""
    paused = [(a, b) for a, b in zip(toggles[::2], [*toggles[1::2], 2**62], strict=False)]
    return sum(max(0, min(end, b) - max(start, a)) for a, b in paused)


times = st.lists(st.integers(0, 10**16), min_size=0, max_size=8).map(sorted)
tokens_at = st.lists(st.integers(0, 10**16), min_size=1, max_size=8).map(sorted)


@given(toggles=times.filter(lambda t: len(set(t)) == len(t)), at=tokens_at, arrived=st.data())
@settings(max_examples=60, deadline=None)
def test_gaps_and_paused_time_make_up_the_wall_time(
    memory: Store, toggles: list[int], at: list[int], arrived: st.DataObject
) -> None:
    arrived_ns = arrived.draw(st.integers(0, at[0]))
    kinds = [(t, "pause" if i % 2 == 0 else "resume") for i, t in enumerate(toggles)]
    run_id = a_run_of(
        memory,
        events=pauses_and_resumes(*kinds),
        tokens=[Message(i, t, [7], [i], [100 + i]) for i, t in enumerate(at)],
        requests=[
            a_request(
                7,
                arrived_ns=arrived_ns,
                admitted_ns=arrived_ns,
                first_token_ns=at[0],
                finished_ns=at[-1],
                output_tokens=len(at),
                finish_reason="length",
            )
        ],
    )
    gaps = memory.reader().rows(
        'SELECT itl_ns, "index", step, t_ns FROM itl WHERE run_id = ? ORDER BY "index"', [run_id]
    )
    expected = [b - a - overlap(a, b, toggles) for a, b in pairwise(at)]
    assert [g[0] for g in gaps] == expected
    assert [g[1:] for g in gaps] == [(i, i, at[i]) for i in range(1, len(at))]
    assert sum(g[0] for g in gaps) + overlap(at[0], at[-1], toggles) == at[-1] - at[0]
    found = row(memory, "request_latency", run_id)
    assert found["decode_ns"] == sum(expected)
    assert found["ttft_ns"] == at[0] - arrived_ns - overlap(arrived_ns, at[0], toggles)
    assert found["e2el_ns"] == found["ttft_ns"] + found["decode_ns"]
    assert found["queue_ns"] == 0
    makespan = row(memory, "makespan", run_id)
    assert makespan["makespan_ns"] == found["e2el_ns"]


# --- latency ---


def finished(request_id: int, *, first: int, last: int, n: int, **changes: Any) -> Any:
    values = {"admitted_ns": 0, "finish_reason": "stop", **changes}
    return a_request(request_id, first_token_ns=first, finished_ns=last, output_tokens=n, **values)


def test_latencies_of_one_request(memory: Store) -> None:
    request = finished(
        1,
        first=700_000_000,
        last=1_900_000_000,
        n=5,
        arrived_ns=100_000_000,
        admitted_ns=250_000_000,
    )
    found = row(memory, "request_latency", a_run_of(memory, requests=[request]))
    assert found["queue_s"] == 0.15
    assert found["ttft_s"] == 0.6
    assert found["decode_s"] == 1.2
    assert found["e2el_s"] == 1.8
    assert found["tpot_s"] == pytest.approx((1.8 - 0.6) / 4, rel=1e-15)


def test_one_output_token_has_no_tpot(memory: Store) -> None:
    found = row(
        memory, "request_latency", a_run_of(memory, requests=[finished(1, first=9, last=9, n=1)])
    )
    assert (found["ttft_ns"], found["decode_ns"], found["e2el_ns"]) == (9, 0, 9)
    assert found["tpot_s"] is None


@pytest.mark.parametrize("reason", ["cancelled", "error", None])
def test_what_needs_the_last_token_is_unknown_unless_completed(
    memory: Store, reason: str | None
) -> None:
    request = finished(1, first=10, last=50, n=3, finish_reason=reason)
    found = row(memory, "request_latency", a_run_of(memory, requests=[request]))
    assert found["ttft_ns"] == 10
    assert (found["decode_ns"], found["e2el_ns"], found["tpot_s"]) == (None, None, None)


def test_a_waiting_request_has_no_latency_yet(memory: Store) -> None:
    found = row(memory, "request_latency", a_run_of(memory, requests=[a_request(1)]))
    assert (found["queue_ns"], found["ttft_ns"], found["e2el_ns"]) == (None, None, None)


def test_a_prompt_that_arrives_during_a_pause_counts_from_the_resume(memory: Store) -> None:
    run_id = a_run_of(
        memory,
        requests=[finished(1, arrived_ns=50, admitted_ns=110, first=130, last=130, n=1)],
        events=pauses_and_resumes((20, "pause"), (100, "resume")),
    )
    found = row(memory, "request_latency", run_id)
    assert (found["queue_ns"], found["ttft_ns"]) == (10, 30)


def test_tokens_of_one_step_have_no_gap_between_them(memory: Store) -> None:
    tokens = [Message(0, 10, [1, 1], [0, 1], [5, 6]), Message(1, 25, [1], [2], [7])]
    run_id = a_run_of(memory, tokens=tokens)
    sql = 'SELECT itl_ns, itl_s FROM itl WHERE run_id = ? ORDER BY "index"'
    assert memory.reader().rows(sql, [run_id]) == [(0, 0.0), (15, 15e-9)]


# --- waste, goodput, utilisation ---


def test_slot_steps_of_a_static_cohort_match_the_golden_waste(memory: Store) -> None:
    """golden static_waste_10: 1 x 2,000 and 9 x 10 output tokens in ten slots: 0.8955."""
    first = a_step(0, batch_slots=10, n_running=10, prefill_seqs=10, phase="prefill")
    full = [a_step(i, batch_slots=10, n_running=10, decode_seqs=10) for i in range(1, 10)]
    tail = [
        a_step(i, batch_slots=10, n_running=1, decode_seqs=1, padded_slots=9)
        for i in range(10, 2000)
    ]
    found = row(memory, "slot_steps", a_run_of(memory, steps=[first, *full, *tail]))
    assert found["padded_slot_fraction"] == 0.8955
    assert found["slot_steps"] == 20_000
    assert found["prefill_slot_steps"] == 10
    assert found["decode_slot_steps"] == 90 + 1990
    assert (found["held_slot_steps"], found["idle_slot_steps"]) == (0, 0)


def test_held_and_idle_slots(memory: Store) -> None:
    step = a_step(0, batch_slots=8, n_running=5, prefill_seqs=1, decode_seqs=2, padded_slots=1)
    found = row(memory, "step_slots", a_run_of(memory, steps=[step]))
    assert (found["held_slots"], found["idle_slots"]) == (2, 2)


def test_a_slot_that_recomputes_is_neither_held_nor_useful(memory: Store) -> None:
    slots = {"batch_slots": 8, "n_running": 5, "prefill_seqs": 1, "decode_seqs": 2}
    run_id = a_run_of(memory, steps=[a_step(0, recompute_seqs=2, **slots)])
    found = row(memory, "step_slots", run_id)
    assert (found["recompute_slots"], found["held_slots"], found["idle_slots"]) == (2, 0, 3)
    assert row(memory, "slot_steps", run_id)["recompute_slot_steps"] == 2


def test_a_source_that_reports_no_recomputation(memory: Store) -> None:
    unknown = {"recompute_seqs": None, "recomputed_flops": None, "recomputed_bytes": None}
    step = a_step(0, batch_slots=2, n_running=2, decode_seqs=1, flops=8, t_step_s=1.0, **unknown)
    run_id = a_run_of(memory, steps=[step], peak_flops=10.0, peak_bandwidth=1.0)
    assert row(memory, "step_slots", run_id)["held_slots"] == 1
    assert row(memory, "utilisation", run_id)["mfu"] == 0.8


def test_what_became_of_the_prompts(memory: Store) -> None:
    requests = [
        finished(1, first=5, last=9, n=2, prompt_tokens=100, cached_tokens=32, preemptions=1),
        finished(2, first=6, last=9, n=2, prompt_tokens=60, cached_tokens=48),
        a_request(3, prompt_tokens=500),  # waits
    ]
    steps = [
        a_step(0, prefill_tokens=80, prefix_hit_tokens=80),
        a_step(1, recomputed_tokens=70, preemptions=1),
    ]
    found = row(memory, "prompt_work", a_run_of(memory, requests=requests, steps=steps))
    assert (found["prompt_tokens"], found["prefix_hit_tokens"]) == (160, 80)
    assert found["computed_prompt_tokens"] + found["prefix_hit_tokens"] == found["prompt_tokens"]
    assert (found["recomputed_tokens"], found["preemptions"]) == (70, 1)
    assert found["prefix_hit_fraction"] == 0.5


def test_fewer_slots_than_running_sequences_leave_none_idle(memory: Store) -> None:
    step = a_step(0, batch_slots=2, n_running=5, decode_seqs=5)
    found = row(memory, "step_slots", a_run_of(memory, steps=[step]))
    assert (found["held_slots"], found["idle_slots"]) == (0, 0)


def requests_against_targets() -> list[Any]:
    s = 1_000_000_000
    return [
        finished(1, first=s // 2, last=s, n=11),  # ttft 0.5, tpot 0.05: met
        finished(2, first=2 * s, last=3 * s, n=101),  # ttft 2: missed
        finished(3, first=s // 2, last=4 * s, n=11),  # tpot 0.35: missed
        finished(4, first=s, last=s, n=1),  # met, no tpot
        finished(5, first=s // 2, last=s, n=11, finish_reason="cancelled"),
    ]


def test_goodput_counts_requests_that_met_both_targets(memory: Store) -> None:
    targets = {"ttft_slo_s": 1.0, "tpot_slo_s": 0.1}
    run_id = a_run_of(memory, requests=requests_against_targets(), **targets)
    found = row(memory, "goodput", run_id)
    assert (found["completed"], found["met"]) == (4, 2)
    assert found["goodput"] == 2 / 4.0


@pytest.mark.parametrize("targets", [{}, {"ttft_slo_s": 1.0}, {"tpot_slo_s": 0.1}])
def test_goodput_is_unknown_without_both_targets(memory: Store, targets: dict[str, float]) -> None:
    found = row(memory, "goodput", a_run_of(memory, requests=requests_against_targets(), **targets))
    assert (found["met"], found["goodput"]) == (None, None)


def test_utilisation_counts_needed_work_per_phase(memory: Store) -> None:
    decode = {"weight_bytes": 100, "kv_read_bytes": 40, "kv_write_bytes": 10, "padded_bytes": 30}
    steps = [
        a_step(0, phase="decode", t_step_s=0.5, flops=900, padded_flops=300, **decode),
        a_step(1, phase="decode", t_step_s=1.5, flops=200, **{**decode, "padded_bytes": 0}),
        a_step(2, phase="prefill", t_step_s=0.25, flops=5000, padded_flops=1000, weight_bytes=1),
        a_step(3, phase="mixed", t_step_s=9.0, flops=10**9, weight_bytes=10**9),
        a_step(
            4,
            phase="prefill",
            t_step_s=0.25,
            flops=900,
            recomputed_flops=800,
            kv_write_bytes=70,
            recomputed_bytes=60,
        ),
    ]
    run_id = a_run_of(memory, steps=steps, peak_flops=20_000.0, peak_bandwidth=1000.0)
    sql = "SELECT phase, steps, mbu, mfu FROM utilisation WHERE run_id = ?"
    found = {phase: values for phase, *values in memory.reader().rows(sql, [run_id])}
    assert found["decode"] == [2, (120 + 150) / (2.0 * 1000), (600 + 200) / (2.0 * 20_000)]
    assert found["prefill"] == [2, (1 + 10) / (0.5 * 1000), (4000 + 100) / (0.5 * 20_000)]


def test_utilisation_is_unknown_without_peaks(memory: Store) -> None:
    step = a_step(0, phase="decode", t_step_s=0.5, flops=9, weight_bytes=9)
    found = row(memory, "utilisation", a_run_of(memory, steps=[step]))
    assert (found["mbu"], found["mfu"]) == (None, None)


def test_drops_add_up_per_table(memory: Store) -> None:
    events = [
        an_event(1, "drop", '{"table": "steps", "rows": 3}'),
        an_event(2, "drop", '{"table": "steps", "rows": 4}'),
        an_event(3, "drop", '{"table": "blocks", "rows": 5}'),
    ]
    run_id = a_run_of(memory, events=events)
    sql = 'SELECT "table", "rows" FROM drops WHERE run_id = ? ORDER BY 1'
    assert memory.reader().rows(sql, [run_id]) == [("blocks", 5), ("steps", 7)]
