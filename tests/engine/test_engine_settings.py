"""Changing an engine's settings while it runs: what is refused, what is marked, what stays."""

from __future__ import annotations

import json
import random

import pytest

from engine.errors import UserError
from engine.models.weights import ModelSource
from engine.request import Request, RequestError, SamplingParams
from engine.schedulers import SCHEDULERS
from telemetry.clock import sleep_s
from tests.engine.conftest import MakeEngine
from tests.engine.recording import many, run_all


def test_a_refused_setting_changes_nothing(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny, blocks=64)
    with pytest.raises(UserError, match="unknown scheduler"):
        engine.configure(scheduler="fastest")
    for bad, message in (
        ({"max_batch": 0}, "max batch is 0: use 1 to"),
        ({"chunk_tokens": 0}, "token budget is 0: use 1 to"),
        ({"kv_blocks": 0}, "KV blocks is 0: use 1 to 64"),
        ({"kv_blocks": 65}, "KV blocks is 65: use 1 to 64"),
    ):
        with pytest.raises(UserError, match=message):
            engine.configure(scheduler="static", prefix_cache=True, **bad)
    assert engine.scheduler.name == "continuous"
    queue = engine.queue
    assert (queue.max_batch, queue.chunk_tokens) == (8, 256)
    assert (queue.blocks.prefix_cache, queue.blocks.num_blocks) == (False, 64)
    assert recording.events == []


def test_fewer_blocks_than_a_live_request_can_need_are_refused(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    engine, recording = make_engine(tiny, blocks=64)
    long = engine.submit(Request((5,) * 60, SamplingParams(100)))
    engine.submit(Request((5,) * 6, SamplingParams(10)))
    arithmetic = (
        r"KV blocks is 9, but request 0 \(prompt of 60 tokens \+ 100 to generate\) needs 10 of 16: "
        "use 10 to 64, or wait"
    )
    with pytest.raises(UserError, match=arithmetic):
        engine.configure(kv_blocks=9)
    assert engine.queue.blocks.num_blocks == 64
    engine.cancel(long)
    engine.configure(kv_blocks=9)
    with pytest.raises(RequestError, match="need 10 KV blocks of 16, but 9 of the cache's 64 are"):
        engine.submit(Request((5,) * 60, SamplingParams(100)))
    assert [e.kind for e in recording.events] == ["kv_blocks"]
    run_all(engine)
    assert {s.kv_blocks_total for s in recording.steps} == {9}


def test_a_switch_is_marked(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny, blocks=64)
    engine.submit(Request((5, 6), SamplingParams(6, ignore_eos=True)))
    engine.step()
    engine.configure(scheduler="static")
    engine.configure(scheduler="static")
    run_all(engine)
    (event,) = recording.events
    assert (event.kind, event.step) == ("scheduler_switch", 0)
    assert json.loads(event.detail) == {"from": "continuous", "to": "static"}
    assert [s.scheduler for s in recording.steps] == ["continuous"] + ["static"] * 5


def test_every_change_is_an_event_of_its_own(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny, blocks=64)
    changes = {
        "scheduler": ("continuous", "chunked"),
        "max_batch": (8, 3),
        "chunk_tokens": (256, 7),
        "prefix_cache": (False, True),
        "kv_blocks": (64, 30),
    }
    wanted = {name: new for name, (_, new) in changes.items()}
    for _ in range(2):  # the second time nothing changes
        engine.configure(**wanted)  # type: ignore[arg-type]
    found = {e.kind: tuple(json.loads(e.detail).values()) for e in recording.events}
    assert found.pop("scheduler_switch") == changes.pop("scheduler")
    assert found == changes
    assert len(recording.events) == 5


def test_changing_everything_while_running_changes_no_token(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    calm, undisturbed = make_engine(tiny, blocks=64)
    many(calm, 8)
    run_all(calm)
    engine, recording = make_engine(tiny, max_batch=3, blocks=20)
    many(engine, 8)
    rng = random.Random(3)
    while engine.has_work:
        if not engine.step():
            sleep_s(0.002)
        engine.check_integrity()
        if rng.random() < 0.3:
            engine.configure(
                scheduler=rng.choice(sorted(SCHEDULERS)),
                max_batch=rng.randint(1, 5),
                chunk_tokens=rng.choice((1, 7, 64)),
                prefix_cache=rng.random() < 0.5,
                kv_blocks=rng.randint(5, 20),
            )
    assert recording.tokens == undisturbed.tokens
    assert engine.queue.blocks.num_used == 0
    assert sum(r.preemptions for r in recording.requests.values()) > 0
