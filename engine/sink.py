"""Where the engine puts its telemetry; `telemetry.recorder.Recorder` is the real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from telemetry.schema import BlockRecord, EventRecord, RequestRecord, StepRecord

IntColumn = Sequence[int] | NDArray[np.int64]


@dataclass(slots=True)
class SequenceSteps:
    """Columns of `sequence_steps` for one step, all of one length; see the schema.

    They may be shared between steps: nobody changes one that was handed over.
    """

    request_id: IntColumn = field(default_factory=list)
    slot: IntColumn = field(default_factory=list)
    phase: list[str] = field(default_factory=list)
    tokens: IntColumn = field(default_factory=list)
    emitted_tokens: IntColumn = field(default_factory=list)
    context_tokens: IntColumn = field(default_factory=list)
    computed_context_tokens: IntColumn = field(default_factory=list)

    def followed_by(self, more: SequenceSteps) -> SequenceSteps:
        """These rows and then those."""
        if not more.phase:
            return self
        return SequenceSteps(
            request_id=_joined(self.request_id, more.request_id),
            slot=_joined(self.slot, more.slot),
            phase=self.phase + more.phase,
            tokens=_joined(self.tokens, more.tokens),
            emitted_tokens=_joined(self.emitted_tokens, more.emitted_tokens),
            context_tokens=_joined(self.context_tokens, more.context_tokens),
            computed_context_tokens=_joined(
                self.computed_context_tokens, more.computed_context_tokens
            ),
        )


def _joined(first: IntColumn, second: IntColumn) -> NDArray[np.int64]:
    return np.concatenate((first, np.asarray(second, np.int64)))


class Sink(Protocol):
    """Called from the engine's thread; must return in microseconds."""

    def step(self, record: StepRecord, sequences: SequenceSteps) -> None: ...
    def request(self, record: RequestRecord) -> None: ...
    def event(self, record: EventRecord) -> None: ...
    def blocks(self, records: Sequence[BlockRecord]) -> None: ...
    def samples(self, table: str, records: Sequence[Any]) -> None: ...


class NullSink:
    """Keeps nothing."""

    def step(self, record: StepRecord, sequences: SequenceSteps) -> None: ...
    def request(self, record: RequestRecord) -> None: ...
    def event(self, record: EventRecord) -> None: ...
    def blocks(self, records: Sequence[BlockRecord]) -> None: ...
    def samples(self, table: str, records: Sequence[Any]) -> None: ...
