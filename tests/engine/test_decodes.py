"""Decodes as columns change nothing: every record is that of an engine that plans one by one."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

import pytest

from engine.backends.modelled import ModelledBackend, StepParts
from engine.backends.synthetic import SyntheticTokens
from engine.batch import ScheduledBatch
from engine.block_manager import BlockManager
from engine.clock import ModelledClock
from engine.decodes import Decodes, Members, int_column
from engine.engine import Engine
from engine.physics.model_spec import ModelSpec
from engine.request import Request, SamplingParams
from engine.schedulers import SequenceQueue
from engine.sequence import Sequence
from engine.step_record import Accounting, Peaks, step_cost
from tests.engine.recording import Recording

SPEC = ModelSpec("small", 2, 32, 64, 4, 2, 8, 100, True, 512)
ACCOUNTING = Accounting(SPEC, "bf16", "bf16", Peaks(1e9, 1e9), one_copy=True)
AMPLE, TIGHT = 200, 14  # blocks of 8 tokens


class Letters:
    """Each letter is a token."""

    eos_token_ids: tuple[int, ...] = (ord("w"),)

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, token_ids: list[int]) -> str:
        return "".join(map(chr, token_ids))


def step_time(batch: ScheduledBatch) -> StepParts:
    """Every step takes another time, by what is in it."""
    return StepParts(1e-4, step_cost(batch, ACCOUNTING).flops / 1e9)


def make_engine(scheduler: str, blocks: int, prefix_cache: bool) -> tuple[Engine, Recording]:
    clock, recording = ModelledClock(0, paced=False), Recording()
    engine = Engine(
        ModelledBackend(clock, step_time, SyntheticTokens(Letters())),
        BlockManager(blocks, 8),
        ACCOUNTING,
        Letters(),
        recording,
        recording.messages.append,
        scheduler=scheduler,
        max_batch=6,
        chunk_tokens=12,
        prefix_cache=prefix_cache,
        clock=clock,
    )
    return engine, recording


def run(engine: Engine, seed: int) -> None:
    """Arrivals between steps; some requests stop at a text or a token, some are cancelled."""
    rng, asked = random.Random(seed), list[int]()
    for step in range(400):
        if rng.random() < 0.3 and step < 200:
            prompt = tuple(rng.choices((5, 6), k=rng.randint(1, 30)))
            stop = ("real",) if rng.random() < 0.2 else ()
            sampling = SamplingParams(rng.randint(1, 40), stop=stop, ignore_eos=rng.random() < 0.6)
            asked.append(engine.submit(Request(prompt, sampling, engine.clock.now_ns())))
        if rng.random() < 0.1 and asked:
            engine.cancel(rng.choice(asked[-6:]))
        engine.step()
        engine.check_integrity()
    assert not engine.has_work


def everything(recording: Recording) -> dict[str, Any]:
    steps = [asdict(record) | {"involuntary_switches": None} for record in recording.steps]
    names = SEQUENCE_COLUMNS
    rows = [{name: list(getattr(r, name)) for name in names} for r in recording.sequences]
    messages = [
        (m.step, m.t_ns, *map(list, (m.request_ids, m.indexes, m.token_ids)), m.finished)
        for m in recording.messages
    ]
    return {
        "steps": steps,
        "sequences": rows,
        "messages": messages,
        "requests": recording.requests,
        "events": recording.events,
        "blocks": recording.block_changes,
    }


SEQUENCE_COLUMNS = (
    *("request_id", "slot", "phase", "tokens", "emitted_tokens", "context_tokens"),
    "computed_context_tokens",
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("blocks", [AMPLE, TIGHT])
@pytest.mark.parametrize("scheduler", ["continuous", "chunked"])
def test_columns_and_single_chunks_leave_the_same_records(
    monkeypatch: pytest.MonkeyPatch, scheduler: str, blocks: int, prefix_cache: bool, seed: int
) -> None:
    engine, columns = make_engine(scheduler, blocks, prefix_cache)
    planned: list[bool] = []
    run_decodes = SequenceQueue.run_decodes

    def noted(self: SequenceQueue, sequences: list[Sequence], starts: list[int]) -> Decodes | None:
        decodes = run_decodes(self, sequences, starts)
        planned.append(decodes is not None)
        return decodes

    monkeypatch.setattr(SequenceQueue, "run_decodes", noted)
    run(engine, seed)
    assert sum(planned) > 100
    monkeypatch.setattr(SequenceQueue, "run_decodes", lambda *_: None)
    engine, single = make_engine(scheduler, blocks, prefix_cache)
    run(engine, seed)
    assert everything(columns) == everything(single)
    preempted = sum(s.preemptions for s in columns.steps)
    assert (preempted > 0) == (blocks == TIGHT)
    reasons = {r.finish_reason for r in columns.requests.values()}
    assert reasons >= {"stop", "length", "cancelled"}


def members(count: int) -> Members:
    request = Request((1, 2, 3), SamplingParams(5, ignore_eos=True))
    sequences = [Sequence(i, request) for i in range(count)]
    for slot, sequence in enumerate(sequences):
        sequence.slot = slot
        sequence.token_ids.append(9)
    return Members(sequences)


def test_a_plan_makes_chunks_of_its_decodes_for_those_who_ask() -> None:
    plan = ScheduledBatch(decodes=Decodes(members(3), [3, 3, 3]))
    chunks = plan.chunks
    assert [(c.sequence.request_id, c.start, c.tokens, c.emits) for c in chunks] == [
        (i, 3, 1, True) for i in range(3)
    ]
    for chunk in chunks:
        chunk.sequence.token_ids.append(9)
    assert all(c.emits for c in plan.chunks), "also after the step"
    assert [id(c) for c in plan.chunks] == [id(c) for c in chunks]
    assert (plan.rows, plan.num_chunks, plan.num_decodes) == (3, 3, 3)


def test_decodes_end_at_their_longest_answer() -> None:
    together = members(2)  # prompts of 3 tokens, answers of 5
    assert Decodes(together, [5, 6]).at_length() == [1]
    assert Decodes(together, [5, 6]).indexes.tolist() == [3, 4]
    assert Decodes(together, [5, 6]).contexts.tolist() == [6, 7]


def test_an_integer_column_is_plain_ints() -> None:
    column = int_column(Decodes(members(2), [5, 6]).contexts)
    assert list(column) == [6, 7]
    assert all(type(value) is int for value in column)
    assert list(int_column(())) == []
