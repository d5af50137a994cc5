"""A GPU: Triton kernels and cuBLAS, sampling on the device, decodes as CUDA graphs.

The device is a parameter. On a CPU the same code runs in Triton's interpreter, which is slow and
proves that it is right; graphs, pinned memory and streams are a GPU's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from engine.backends.runner import RunnerBackend
from engine.backends.triton_runner import TritonRunner
from engine.batch import ScheduledBatch, StepOutput
from engine.models.weights import ModelSource


class CUDABackend(RunnerBackend):
    """A runner; the tokens come from the device, each request's from its own seed and step."""

    name: ClassVar[str] = "cuda"
    runner: TritonRunner

    def __init__(
        self,
        source: ModelSource,
        *,
        dtype: str,
        kv_dtype: str,
        kv_slots: int,
        block_size: int,
        max_batch: int,
        device: torch.device,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        """max_batch: decodes that can run from the device's own state; more run, copied over."""
        super().__init__(source.tokenizer)
        self.runner = TritonRunner(
            source,
            dtype=dtype,
            kv_dtype=kv_dtype,
            kv_slots=kv_slots,
            block_size=block_size,
            max_batch=max_batch,
            device=device,
            progress=progress,
        )

    def sample(self, batch: ScheduledBatch, logits: Tensor) -> StepOutput:
        return StepOutput(self.runner.tokens())

    def forget(self, request_id: int) -> None:
        """Nothing is kept for a request: its randomness is a function of its seed and step."""
