"""Where the engine puts its telemetry; `telemetry.recorder.Recorder` is the real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from telemetry.schema import BlockRecord, EventRecord, RequestRecord, StepRecord


@dataclass(slots=True)
class SequenceSteps:
    """Columns of `sequence_steps` for one step, all of one length; see the schema."""

    request_id: list[int] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)
    phase: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    emitted_tokens: list[int] = field(default_factory=list)
    context_tokens: list[int] = field(default_factory=list)
    computed_context_tokens: list[int] = field(default_factory=list)


class Sink(Protocol):
    """Called from the engine's thread; must return in microseconds."""

    def step(self, record: StepRecord, sequences: SequenceSteps) -> None: ...
    def request(self, record: RequestRecord) -> None: ...
    def event(self, record: EventRecord) -> None: ...
    def blocks(self, records: Sequence[BlockRecord]) -> None: ...


class NullSink:
    """Keeps nothing."""

    def step(self, record: StepRecord, sequences: SequenceSteps) -> None: ...
    def request(self, record: RequestRecord) -> None: ...
    def event(self, record: EventRecord) -> None: ...
    def blocks(self, records: Sequence[BlockRecord]) -> None: ...
