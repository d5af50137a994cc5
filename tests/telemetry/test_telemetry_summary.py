"""Every figure of a tiny run, worked out by hand."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from telemetry_records import WALL, Message, a_request, a_run, a_step, an_event

from telemetry.batches import table_of, token_table
from telemetry.queries.summary import outputs_sha256, run_summary, runs
from telemetry.store import Store

MS = 1_000_000
# Three requests in two slots. Request 5 gets tokens at 100, 150, 250 ms; request 6 one token at
# 150 ms and ends; request 9 waits for its slot and gets tokens at 250 and 400 ms.
TOKENS = (
    Message(0, 100 * MS, [5], [0], [11]),
    Message(1, 150 * MS, [5, 6], [1, 0], [12, 21]),
    Message(2, 250 * MS, [5, 9], [2, 0], [13, 31]),
    Message(3, 400 * MS, [9], [1], [32]),
)


def ended(request_id: int, first: int, last: int, n: int, **changes: Any) -> Any:
    return a_request(
        request_id,
        first_token_ns=first * MS,
        finished_ns=last * MS,
        output_tokens=n,
        **{"admitted_ns": 0, "finish_reason": "length", **changes},
    )


REQUESTS = (
    ended(5, 100, 250, 3, prompt_tokens=10, cached_tokens=4, preemptions=1),
    ended(6, 150, 150, 1, prompt_tokens=6, finish_reason="stop"),
    ended(9, 250, 400, 2, prompt_tokens=16, cached_tokens=4, admitted_ns=150 * MS, preemptions=1),
)
SLOTS = {"batch_slots": 2, "n_running": 2}
WORK = {"weight_bytes": 1000, "kv_read_bytes": 300, "kv_write_bytes": 100, "padded_bytes": 200}
STEPS = (
    a_step(
        0, phase="prefill", t_step_s=0.1, prefill_seqs=1, flops=6000, padded_flops=1000, **SLOTS
    ),
    a_step(
        1,
        phase="mixed",
        t_step_s=0.05,
        prefill_tokens=24,
        recomputed_tokens=15,
        prefill_seqs=1,
        decode_seqs=1,
        **SLOTS,
        **WORK,
    ),
    a_step(2, phase="decode", t_step_s=0.1, decode_seqs=2, **SLOTS, **WORK),
    a_step(3, phase="decode", t_step_s=0.15, decode_seqs=1, padded_slots=1, **SLOTS, **WORK),
)


def a_recorded(
    store: Store,
    requests: Sequence[Any] = REQUESTS,
    tokens: Sequence[Message] = TOKENS,
    events: Sequence[Any] = (),
    **run: Any,
) -> str:
    run_id = store.start_run(a_run(peak_flops=100_000.0, peak_bandwidth=20_000.0, **run))
    tables = {"requests": requests, "steps": STEPS, "events": events}
    rows = {name: table_of(name, records) for name, records in tables.items()}
    store.append(run_id, {**rows, "tokens": token_table(tokens)})
    store.flush()
    return run_id


def test_every_figure_of_a_tiny_run(memory: Store) -> None:
    events = [an_event(1, "drop", '{"table": "blocks", "rows": 3}')]
    run_id = a_recorded(memory, events=events, ttft_slo_s=0.2, tpot_slo_s=0.08)
    found = run_summary(memory.reader(), run_id)
    assert found["steps"] == 4
    assert found["requests"] == found["completed"] == 3
    assert found["output_tokens"] == 6
    assert found["makespan_s"] == 0.4
    assert found["output_tokens_per_s"] == pytest.approx(6 / 0.4)
    # TTFT 0.1, 0.15, 0.25. P99 of three lies 0.98 of the way from the second to the third.
    assert found["ttft_s"] == pytest.approx({"p50": 0.15, "p99": 0.15 + 0.98 * 0.1})
    # TPOT 0.15/2 and 0.15/1; request 6 has one token and none.
    assert found["tpot_s"] == pytest.approx({"p50": 0.1125, "p99": 0.075 + 0.99 * 0.075})
    # Gaps 0.05, 0.1, 0.15.
    assert found["itl_s"] == pytest.approx({"p50": 0.1, "p99": 0.1 + 0.98 * 0.05, "max": 0.15})
    assert found["padded_slot_fraction"] == 1 / 8
    assert found["mbu_decode"] == pytest.approx(2 * 1200 / (0.25 * 20_000))
    assert found["mfu_prefill"] == pytest.approx(5000 / (0.1 * 100_000))
    assert found["preemptions"] == 2
    assert found["prefix_hit_fraction"] == 8 / 32
    assert found["computed_prompt_tokens"] == 24
    assert found["recomputed_tokens"] == 15
    assert found["goodput_per_s"] == pytest.approx(2 / 0.4)  # request 9 misses both
    assert found["dropped_records"] == 3


def test_the_hash_is_over_numbers_counts_and_token_ids(memory: Store) -> None:
    numbers = [0, 3, 11, 12, 13, 1, 1, 21, 2, 2, 31, 32]
    expected = hashlib.sha256(struct.pack("<12q", *numbers)).hexdigest()
    assert run_summary(memory.reader(), a_recorded(memory))["outputs_sha256"] == expected


def sha256_of(store: Store, tokens: Sequence[Message], ids: Sequence[int] = (5, 6, 9)) -> str:
    requests = [ended(i, 1, 2, 1) for i in ids]
    found = outputs_sha256(store.reader(), a_recorded(store, requests, tokens))
    assert found is not None
    return found


def test_the_hash_does_not_know_the_schedule(memory: Store) -> None:
    answers = {5: [11, 12, 13], 6: [21], 9: [31, 32]}
    one_by_one = [
        Message(40 + n, n * MS, [i], [index], [token])
        for n, (i, index, token) in enumerate(
            (i, index, t) for i in (9, 5, 6) for index, t in enumerate(answers[i])
        )
    ]
    assert sha256_of(memory, one_by_one) == sha256_of(memory, TOKENS)
    renumbered = [Message(m.step, m.t_ns, [i + 70 for i in m.request_ids], m.indexes, m.token_ids)
                  for m in TOKENS]  # fmt: skip
    assert sha256_of(memory, renumbered, (75, 76, 79)) == sha256_of(memory, TOKENS)


@pytest.mark.parametrize(
    "last",
    [
        Message(3, 400 * MS, [9], [1], [33]),  # another token
        Message(3, 400 * MS, [6], [1], [32]),  # another request's
        Message(3, 400 * MS),  # lost
    ],
)
def test_the_hash_knows_each_token_and_whose_it_is(memory: Store, last: Message) -> None:
    assert sha256_of(memory, [*TOKENS[:3], last]) != sha256_of(memory, TOKENS)


def test_a_lost_request_changes_the_hash(memory: Store) -> None:
    cancelled = [REQUESTS[0], ended(6, 150, 150, 1, finish_reason="cancelled"), REQUESTS[2]]
    lost = outputs_sha256(memory.reader(), a_recorded(memory, cancelled))
    assert lost != sha256_of(memory, TOKENS)


def test_what_is_unknown_is_none(memory: Store) -> None:
    run_id = memory.start_run(a_run())
    found = run_summary(memory.reader(), run_id)
    counts = (
        *("steps", "requests", "completed", "output_tokens", "preemptions", "dropped_records"),
        *("computed_prompt_tokens", "recomputed_tokens"),
    )
    assert {name: found.pop(name) for name in counts} == dict.fromkeys(counts, 0)
    for name in ("ttft_s", "tpot_s"):
        assert found.pop(name) == {"p50": None, "p99": None}
    assert found.pop("itl_s") == {"p50": None, "p99": None, "max": None}
    assert set(found.values()) == {None}


def test_time_paused_is_not_makespan(memory: Store) -> None:
    events = [an_event(160 * MS, "pause"), an_event(200 * MS, "resume")]
    found = run_summary(memory.reader(), a_recorded(memory, events=events))
    assert found["makespan_s"] == 0.36
    assert found["itl_s"]["max"] == 0.15


def test_an_unknown_run_is_refused_with_those_there_are() -> None:
    store = Store(None)
    with pytest.raises(ValueError, match="no run x: there are none"):
        run_summary(store.reader(), "x")
    run_id = store.start_run(a_run())
    with pytest.raises(ValueError, match=f"no run x: there are {run_id}"):
        run_summary(store.reader(), "x")
    store.close()


def test_runs_lists_the_newest_first() -> None:
    store = Store(None)
    older = a_recorded(store)
    newer = store.start_run(a_run(started_wall=WALL + timedelta(hours=1), model="other"))
    found = runs(store.reader())
    assert found["run_id"].tolist() == [newer, older]
    assert found["model"].tolist() == ["other", "SmolLM2-135M-Instruct"]
    assert found["steps"].tolist() == [0, 4]
    assert found["requests"].tolist() == [0, 3]
    assert found["output_tokens"].tolist() == [0, 6]
    assert found["schedulers"].tolist()[1] == "continuous"
    store.close()
