"""What executes a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from engine.batch import ScheduledBatch, StepOutput


class Backend(ABC):
    """Three calls a step, so that the engine can time each."""

    name: ClassVar[str]

    @abstractmethod
    def prepare(self, batch: ScheduledBatch) -> Any:
        """Build the inputs of the forward pass."""

    @abstractmethod
    def forward(self, inputs: Any) -> Any:
        """Run the model; logits of the sampled rows, in order of the batch."""

    @abstractmethod
    def sample(self, batch: ScheduledBatch, logits: Any) -> StepOutput:
        """One token for every chunk that samples; padded rows run and are thrown away."""

    @abstractmethod
    def forget(self, request_id: int) -> None:
        """A request has ended: drop what was kept for it."""
