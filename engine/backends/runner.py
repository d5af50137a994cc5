"""A backend whose forward pass a runner makes: what the CPU and a GPU have in common."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from torch import Tensor

from engine.backends.base import Backend
from engine.backends.kernel_times import KernelTime
from engine.batch import ScheduledBatch
from engine.tokenizer import Tokenizer


class Runner(Protocol):
    """Weights, cache and forward pass of one kind of kernels."""

    kernels: ClassVar[str]

    def prepare(self, batch: ScheduledBatch, pad_token: int) -> Any: ...

    def forward(self, inputs: Any, timed: bool = False) -> Tensor:
        """Logits [sampled, vocab], in order of the batch; gone with the next call.

        timed: `kernel_times` then tells of this call.
        """
        ...

    def kernel_times(self) -> list[KernelTime]: ...


class RunnerBackend(Backend):
    """Hands each step to its runner; one step is timed for each time it is asked to."""

    times_kernels: ClassVar[bool] = True
    runner: Runner

    def __init__(self, tokenizer: Tokenizer) -> None:
        """tokenizer: of the model that runs; rows of padding are its end of text."""
        self._timed = False
        self._pad_token = tokenizer.eos_token_ids[0] if tokenizer.eos_token_ids else 0

    @property
    def kernels(self) -> str:
        """What runs: vector, torch or triton."""
        return self.runner.kernels

    def prepare(self, batch: ScheduledBatch) -> Any:
        return self.runner.prepare(batch, self._pad_token)

    def forward(self, inputs: Any) -> Tensor:
        timed, self._timed = self._timed, False
        return self.runner.forward(inputs, timed)

    def time_kernels(self) -> None:
        self._timed = True

    def kernel_times(self) -> list[KernelTime]:
        return self.runner.kernel_times()
