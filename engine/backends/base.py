"""What executes a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from engine.backends.kernel_times import KernelTime
from engine.batch import ScheduledBatch, StepOutput


class Backend(ABC):
    """Three calls a step, so that the engine can time each."""

    name: ClassVar[str]
    times_kernels: ClassVar[bool] = False
    """Whether it can say how long each kernel of a forward pass took."""

    @abstractmethod
    def prepare(self, batch: ScheduledBatch) -> Any:
        """Build the inputs of the forward pass."""

    @abstractmethod
    def forward(self, inputs: Any) -> Any:
        """Run the model; logits of the sampled rows, in order of the batch."""

    def time_kernels(self) -> None:
        """The next forward pass is timed kernel by kernel; only where `times_kernels`."""
        raise NotImplementedError(f"the {self.name} backend does not time its kernels")

    def kernel_times(self) -> list[KernelTime]:
        """Of the last pass that was timed; called after that step's `sample`."""
        return []

    @abstractmethod
    def sample(self, batch: ScheduledBatch, logits: Any) -> StepOutput:
        """One token for every chunk that samples; padded rows run and are thrown away."""

    @abstractmethod
    def forget(self, request_id: int) -> None:
        """A request has ended: drop what was kept for it."""
