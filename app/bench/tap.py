"""A sink that keeps the records of steps and passes everything on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.sink import SequenceSteps, Sink
from telemetry.schema import BlockRecord, EventRecord, RequestRecord, StepRecord


class Tap:
    """`sink` may be exchanged between steps."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.steps: list[StepRecord] = []

    def step(self, record: StepRecord, sequences: SequenceSteps) -> None:
        self.steps.append(record)
        self.sink.step(record, sequences)

    def request(self, record: RequestRecord) -> None:
        self.sink.request(record)

    def event(self, record: EventRecord) -> None:
        self.sink.event(record)

    def blocks(self, records: Sequence[BlockRecord]) -> None:
        self.sink.blocks(records)

    def samples(self, table: str, records: Sequence[Any]) -> None:
        self.sink.samples(table, records)
