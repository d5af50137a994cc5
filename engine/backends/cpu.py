"""The CPU: vector kernels where they run, torch's ops elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from engine.backends.runner import Runner, RunnerBackend
from engine.backends.torch_runner import TORCH_DTYPES, TorchRunner
from engine.batch import ScheduledBatch, StepOutput
from engine.errors import UserError, unknown
from engine.models.simd_weights import fits
from engine.models.weights import ModelSource
from engine.sampling import Sampler
from kernels.attention.cache_layout import PAGE_TOKENS
from kernels.simd.support import runs

DTYPES = ("fp32", "bf16", "int8", "int4")
KERNELS = ("auto", "vector", "torch")


class CPUBackend(RunnerBackend):
    """A runner and a sampler."""

    name: ClassVar[str] = "cpu"

    def __init__(
        self,
        source: ModelSource,
        *,
        dtype: str,
        kv_dtype: str,
        kv_slots: int,
        block_size: int = PAGE_TOKENS,
        kernels: str = "auto",
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        """kernels: vector, torch, or auto, the first that runs. Raises UserError."""
        super().__init__(source.tokenizer)
        make = _runner(source, dtype, kv_dtype, block_size, kernels)
        self.runner = make(
            source, dtype=dtype, kv_dtype=kv_dtype, kv_slots=kv_slots, progress=progress
        )
        self.sampler = Sampler()

    @torch.inference_mode()
    def sample(self, batch: ScheduledBatch, logits: Tensor) -> StepOutput:
        sequences = [c.sequence for c in batch.chunks if c.samples]
        return StepOutput(self.sampler(sequences, logits))

    def forget(self, request_id: int) -> None:
        self.sampler.forget(request_id)


def _runner(
    source: ModelSource, dtype: str, kv_dtype: str, block_size: int, kernels: str
) -> Callable[..., Runner]:
    """The kind of runner for this model on this CPU. Raises UserError where none runs."""
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    if kv_dtype not in TORCH_DTYPES:
        raise unknown("kv dtype", kv_dtype, TORCH_DTYPES)
    if kernels not in KERNELS:
        raise unknown("kernels", kernels, KERNELS)
    vector = _vector_runs(source, dtype, kv_dtype, block_size)
    if kernels == "torch" or (kernels == "auto" and not vector):
        if dtype not in TORCH_DTYPES:
            raise UserError(
                f"{dtype} needs a CPU with AVX-512 and its bfloat16 instructions, a model whose "
                f"widths are multiples of 32 and KV blocks of {PAGE_TOKENS} tokens or a multiple "
                f"(here {block_size}): use {' or '.join(TORCH_DTYPES)}"
            )
        return TorchRunner
    if not vector:
        raise UserError(
            "the vector kernels do not run this model on this CPU: use --kernels auto or torch"
        )
    from engine.backends.simd_runner import SimdRunner

    return SimdRunner


def _vector_runs(source: ModelSource, dtype: str, kv_dtype: str, block_size: int) -> bool:
    return fits(source.config) and block_size % PAGE_TOKENS == 0 and runs(dtype) and runs(kv_dtype)
