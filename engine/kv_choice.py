"""Which KV dtype decodes faster on this machine: measured, since it depends on the kernels.

bfloat16 halves the bytes, but torch's own attention on a CPU reads it many times slower than
float32; the vector kernels read it at memory's speed.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.backends.torch_runner import TorchRunner
from engine.batch import Chunk, ScheduledBatch
from engine.models.config import LlamaConfig
from engine.models.weights import tensor_shape
from engine.request import Request
from engine.sequence import Sequence
from kernels.attention.cache_layout import PAGE_TOKENS
from kernels.simd.support import runs
from telemetry.clock import now_ns, seconds

CONTEXT, BATCH, RUNS = 512, 8, 5
# Attention as in the default model, and as little else as possible.
_SHAPE = LlamaConfig(
    name="attention",
    layers=2,
    hidden=64,
    intermediate=64,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=64,
    max_context=CONTEXT,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    tied_embeddings=True,
)


@dataclass(frozen=True, slots=True)
class _Source:
    config: LlamaConfig

    def get(self, name: str) -> Tensor:
        return torch.full(tensor_shape(self.config, name), 0.01)


def kv_read_rates(dtype: str) -> dict[str, float]:
    """Tokens of context that a decode reads per second and layer, by KV dtype; math in `dtype`."""
    return {kv_dtype: _rate(dtype, kv_dtype) for kv_dtype in ("fp32", "bf16")}


def _rate(dtype: str, kv_dtype: str) -> float:
    if runs(dtype) and runs(kv_dtype):
        from engine.backends.simd_runner import SimdRunner as Runner
    else:
        Runner = TorchRunner  # type: ignore[assignment,misc]  # noqa: N806
    slots = BATCH * CONTEXT
    runner = Runner(
        _Source(_SHAPE), dtype=dtype, kv_dtype=kv_dtype, kv_slots=slots, progress=lambda _: None
    )
    inputs = runner.prepare(_batch(), 0)
    runner.forward(inputs)
    times = []
    for _ in range(RUNS):
        started = now_ns()
        runner.forward(inputs)
        times.append(seconds(now_ns() - started))
    return slots * _SHAPE.layers / statistics.median(times)


def _batch() -> ScheduledBatch:
    """BATCH sequences, each about to decode at a context of CONTEXT."""
    chunks = []
    for i in range(BATCH):
        sequence = Sequence(i, Request((1,) * CONTEXT))
        blocks = CONTEXT // PAGE_TOKENS
        sequence.hold(list(range(i * blocks, (i + 1) * blocks)), PAGE_TOKENS)
        chunks.append(Chunk(sequence, CONTEXT - 1, 1))
    return ScheduledBatch(chunks)
