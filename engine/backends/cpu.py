"""torch on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from engine.backends.base import Backend
from engine.backends.inputs import StepInputs, build_inputs
from engine.backends.kv_cache import KVCache
from engine.batch import ScheduledBatch, StepOutput
from engine.errors import unknown
from engine.models.llama import LlamaModel
from engine.models.weights import ModelSource
from engine.sampling import Sampler

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def torch_dtype(name: str) -> torch.dtype:
    """Raises UserError naming the dtypes that this backend computes in."""
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name]


class CPUBackend(Backend):
    """Packed weights, a paged cache, and a sampler."""

    name: ClassVar[str] = "cpu"

    def __init__(
        self,
        source: ModelSource,
        *,
        dtype: str,
        kv_dtype: str,
        kv_slots: int,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.model = LlamaModel(source.config, source.get, torch_dtype(dtype), progress)
        self.cache = KVCache(source.config, kv_slots, torch_dtype(kv_dtype))
        self.sampler = Sampler()
        self._pad_token = source.tokenizer.eos_token_ids[0] if source.tokenizer.eos_token_ids else 0

    def prepare(self, batch: ScheduledBatch) -> StepInputs:
        return build_inputs(batch, self._pad_token)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs) -> Tensor:
        logits = self.model.forward(
            inputs.token_ids, inputs.positions, inputs.sampled, self.cache.attention(inputs)
        )
        return logits[: inputs.num_sampled]

    @torch.inference_mode()
    def sample(self, batch: ScheduledBatch, logits: Tensor) -> StepOutput:
        sequences = [c.sequence for c in batch.chunks if c.samples]
        return StepOutput(self.sampler(sequences, logits))

    def forget(self, request_id: int) -> None:
        self.sampler.forget(request_id)
