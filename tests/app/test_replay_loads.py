"""Which load sent a recorded request: streams of a closed loop, and what its prompt shares."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from app.replay.loads import Loads
from engine.workloads import load_workload


def changes(*events: tuple[int, dict[str, Any]]) -> pd.DataFrame:
    rows = [{"kind": "load", "detail": json.dumps(d), "t_ns": t} for t, d in events]
    other = {"kind": "max_batch", "detail": '{"from": 1, "to": 2}', "t_ns": 5}
    return pd.DataFrame([other, *rows])


def load(name: str, **settings: Any) -> dict[str, Any]:
    found = load_workload(name, seed=0)
    scale = found.scale.to_json() if found.scale else None
    return {"workload": name, "seed": 0, "max_context": 8192, "scale": scale, **settings}


def test_requests_of_a_closed_loop_know_its_streams_and_its_start() -> None:
    loads = Loads.of(changes((1000, load("steady", concurrency=4))))
    source = loads.source(2000, "steady:request", 100)
    assert (source.streams, source.began_ns, source.pieces) == (4, 1000, ())


def test_turns_of_a_conversation_share_what_the_workload_says() -> None:
    items = [load_workload("chat", seed=3).item(k) for k in range(12)]
    loads = Loads.of(changes((0, load("chat", seed=3, concurrency=4))))
    found = [loads.source(10, item.label, item.prompt_tokens).pieces for item in items]
    assert found == [item.pieces for item in items]
    assert {pieces[0].name for pieces in found} == {"system"}
    assert loads.notes() == ()


def test_a_request_that_is_not_where_it_should_be_ends_the_guessing() -> None:
    item = load_workload("chat", seed=0).item(0)
    loads = Loads.of(changes((0, load("chat", concurrency=4))))
    assert loads.source(1, item.label, item.prompt_tokens + 1).pieces == ()
    assert loads.source(2, item.label, item.prompt_tokens).pieces == ()
    assert "'chat'" in loads.notes()[0]


def test_of_a_persons_file_nothing_is_known() -> None:
    loads = Loads.of(changes((0, {"workload": "mine", "concurrency": None, "seed": 0})))
    assert loads.notes() == (), "it sent nothing yet"
    assert loads.source(1, "mine", 50).streams is None
    assert "'mine'" in loads.notes()[0]


def test_the_load_of_the_time_counts_and_prompts_of_people_belong_to_none() -> None:
    loads = Loads.of(
        changes(
            (0, load("steady", concurrency=2)),
            (10**9, load("skew", concurrency=8)),
            (2 * 10**9, {"workload": None, "withdrawn": 0}),
        )
    )
    assert loads.source(5 * 10**8, "steady:request", 64).streams == 2
    assert loads.source(15 * 10**8, "skew:short", 40).streams == 8
    assert loads.source(15 * 10**8, "prompt", 40).streams is None
    assert loads.source(15 * 10**8, None, 40).streams is None
    assert loads.source(25 * 10**8, "steady:request", 40).streams is None


def test_a_trace_that_was_not_scaled_down_shares_whole_blocks() -> None:
    whole = load_workload("mooncake", seed=0, as_recorded=True).item(0)
    loads = Loads.of(changes((0, load("mooncake", scale=None, max_context=10**6))))
    pieces = loads.source(1, "mooncake", whole.prompt_tokens).pieces
    assert pieces == whole.pieces
    assert pieces[0].tokens == 512
