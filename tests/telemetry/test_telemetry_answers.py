"""One pass over the tokens of a run finds what the views define."""

from __future__ import annotations

import random

import numpy as np
import pytest
from telemetry_records import Message, a_request, a_run, an_event

from telemetry.batches import table_of, token_table
from telemetry.queries import answers
from telemetry.queries.answers import read_answers
from telemetry.store import Store

REQUESTS = 40
PAUSES = [(900, "pause"), (1300, "resume"), (2000, "pause"), (2050, "pause"), (2100, "resume")]


def recorded(store: Store, *, paused: bool) -> str:
    """Every request has its own gaps, and one of them never answers; others run beside it."""
    rng = random.Random(7)
    now, left = 0, {3 + 2 * i: rng.randint(1, 30) for i in range(REQUESTS)}
    messages: list[Message] = []
    done = dict.fromkeys(left, 0)
    while left:
        now += rng.randint(1, 90)
        running = sorted(rng.sample(sorted(left), min(len(left), rng.randint(1, 9))))
        indexes = [done[i] for i in running]
        ids = [rng.randrange(1000) for _ in running]
        messages.append(Message(len(messages), now, running, indexes, ids))
        for i in running:
            done[i] += 1
            left[i] -= 1
            if not left[i]:
                del left[i]
    requests = [a_request(i, finish_reason="length") for i in (*done, 1001)]
    events = [an_event(t, kind) for t, kind in PAUSES] if paused else []
    run_id = store.start_run(a_run())
    tables = {"requests": table_of("requests", requests), "events": table_of("events", events)}
    store.append(run_id, {**tables, "tokens": token_table(messages)})
    store.flush()
    return run_id


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("part", [5, 60, 10_000])
def test_the_gaps_are_those_of_the_view(
    memory: Store, monkeypatch: pytest.MonkeyPatch, part: int, paused: bool
) -> None:
    recorded(memory, paused=not paused)  # another run in the same database
    run_id = recorded(memory, paused=paused)
    reader = memory.reader()
    expected = reader.frame("SELECT itl_s FROM itl WHERE run_id = $run", {"run": run_id})["itl_s"]
    assert len(expected) > 400
    monkeypatch.setattr(answers, "PART_TOKENS", part)
    found = read_answers(reader, run_id)
    assert np.sort(found.gaps_s) == pytest.approx(np.sort(expected.to_numpy()), abs=1e-12)


def test_the_hash_does_not_depend_on_the_parts(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = recorded(memory, paused=False)
    whole = read_answers(memory.reader(), run_id).sha256
    monkeypatch.setattr(answers, "PART_TOKENS", 7)
    assert read_answers(memory.reader(), run_id).sha256 == whole
