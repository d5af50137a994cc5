"""A device that is not here: it takes the same batches and moves the clock by what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

from engine.backends.base import Backend
from engine.backends.synthetic import SyntheticTokens
from engine.batch import ScheduledBatch, StepOutput
from engine.clock import ModelledClock


class StepParts(NamedTuple):
    """What one step takes, seconds: before the forward pass, and in it."""

    host_s: float
    forward_s: float


StepTime = Callable[[ScheduledBatch], StepParts]
"""Whatever knows how long a batch takes: a cost model, or one fitted to a recorded run."""


class ModelledBackend(Backend):
    """Nothing is computed; the tokens are synthetic."""

    name: ClassVar[str] = "modelled"

    def __init__(self, clock: ModelledClock, step_time: StepTime, tokens: SyntheticTokens) -> None:
        self._clock, self._step_time, self._tokens = clock, step_time, tokens

    def prepare(self, batch: ScheduledBatch) -> StepParts:
        parts = self._step_time(batch)
        self._clock.advance(parts.host_s)
        return parts

    def forward(self, inputs: StepParts) -> None:
        self._clock.advance(inputs.forward_s)

    def sample(self, batch: ScheduledBatch, logits: None) -> StepOutput:
        return StepOutput(self._tokens.of(batch))

    def forget(self, request_id: int) -> None:
        self._tokens.forget(request_id)
