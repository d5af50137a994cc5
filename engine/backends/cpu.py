"""The CPU: vector kernels where they run, torch's ops elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from engine.backends.base import Backend
from engine.backends.kernel_times import KernelTime
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


class CPUBackend(Backend):
    """A runner and a sampler."""

    name: ClassVar[str] = "cpu"
    times_kernels: ClassVar[bool] = True

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
        make = _runner(source, dtype, kv_dtype, block_size, kernels)
        self.runner: Runner = make(
            source, dtype=dtype, kv_dtype=kv_dtype, kv_slots=kv_slots, progress=progress
        )
        self.sampler = Sampler()
        self._timed = False
        self._pad_token = source.tokenizer.eos_token_ids[0] if source.tokenizer.eos_token_ids else 0

    @property
    def kernels(self) -> str:
        """What runs: vector or torch."""
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
