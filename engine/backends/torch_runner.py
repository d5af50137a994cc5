"""Runs a step with torch's own ops: any shape, any CPU, and the vector kernels' oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from engine.backends.inputs import StepInputs, build_inputs
from engine.backends.kernel_marks import Marks
from engine.backends.kernel_times import KernelTime, unmarked
from engine.backends.kv_cache import KVCache
from engine.batch import ScheduledBatch
from engine.models.llama import LlamaModel
from engine.models.weights import TensorSource

_CPU = torch.device("cpu")
TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class TorchRunner:
    """Packed weights where oneDNN can pack them, and a paged cache in rows of tokens."""

    kernels: ClassVar[str] = "torch"

    def __init__(
        self,
        source: TensorSource,
        *,
        dtype: str,
        kv_dtype: str,
        kv_slots: int,
        progress: Callable[[float], None],
    ) -> None:
        self.model = LlamaModel(source.config, source.get, TORCH_DTYPES[dtype], progress)
        self.cache = KVCache(source.config, kv_slots, TORCH_DTYPES[kv_dtype])
        self._marks: Marks | None = None

    def prepare(self, batch: ScheduledBatch, pad_token: int) -> StepInputs:
        return build_inputs(batch, pad_token)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, timed: bool = False) -> Tensor:
        self._marks = Marks(_CPU) if timed else None
        mark = self._marks or unmarked
        attention = self.cache.attention(inputs, mark)
        logits = self.model.forward(
            inputs.token_ids, inputs.positions, inputs.sampled, attention, mark
        )
        return logits[: inputs.num_sampled]

    def kernel_times(self) -> list[KernelTime]:
        return self._marks.times() if self._marks else []
