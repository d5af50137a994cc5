"""A sink that keeps everything, and reads tokens back out of messages."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.engine import Engine
from engine.messages import TokenMessage
from engine.request import Request, SamplingParams
from engine.sink import SequenceSteps
from telemetry.clock import sleep_s
from telemetry.schema import BlockRecord, EventRecord, RequestRecord, StepRecord


@dataclass
class Recording:
    """Implements engine.sink.Sink."""

    steps: list[StepRecord] = field(default_factory=list)
    sequences: list[SequenceSteps] = field(default_factory=list)
    requests: dict[int, RequestRecord] = field(default_factory=dict)
    events: list[EventRecord] = field(default_factory=list)
    block_changes: list[BlockRecord] = field(default_factory=list)
    messages: list[TokenMessage] = field(default_factory=list)
    sampled: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))

    def step(self, record: StepRecord, sequences: SequenceSteps) -> None:
        self.steps.append(record)
        self.sequences.append(sequences)

    def request(self, record: RequestRecord) -> None:
        self.requests[record.request_id] = record

    def event(self, record: EventRecord) -> None:
        self.events.append(record)

    def blocks(self, records: Sequence[BlockRecord]) -> None:
        self.block_changes.extend(records)

    def samples(self, table: str, records: Sequence[Any]) -> None:
        self.sampled[table].extend(records)

    @property
    def tokens(self) -> dict[int, list[int]]:
        """Emitted tokens per request, in order."""
        found: dict[int, list[int]] = defaultdict(list)
        for message in self.messages:
            rows = zip(message.request_ids, message.indexes, message.token_ids, strict=True)
            for request_id, index, token in rows:
                assert index == len(found[request_id]), "tokens arrive in order, each once"
                found[request_id].append(token)
        return dict(found)


def run_all(engine: Engine, limit: int = 5000) -> None:
    """Step until nothing is left, checking the books after every step."""
    for _ in range(limit):
        if not engine.has_work:
            return
        if not engine.step():
            sleep_s(0.002)  # an incomplete static cohort waits for its window
        engine.check_integrity()
    raise AssertionError("the engine does not come to an end")


def many(engine: Engine, count: int = 5) -> dict[int, tuple[int, ...]]:
    """Requests with a shared beginning that need 5 blocks each; prompts by request id."""
    rng = random.Random(5)
    shared = tuple(rng.choices(range(100, 40_000), k=37))
    prompts = [shared + tuple(rng.choices(range(100, 40_000), k=9)) for _ in range(count)]
    return {engine.submit(Request(p, SamplingParams(30, ignore_eos=True))): p for p in prompts}
