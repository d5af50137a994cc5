"""Counts against torch's own FLOP counter over plain linears and matmul attention.

The counter sees the full square, so attention runs query by query over its true context.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from engine.physics.cost import ChunkWork, count_step
from engine.physics.model_spec import ModelSpec

SPECS = [
    ModelSpec("gqa", 2, 48, 96, 6, 2, 8, 130, True, 512),
    ModelSpec("mha-wide-heads", 3, 32, 80, 4, 4, 16, 70, False, 512),
]
BATCHES = {
    "decode": [
        ChunkWork(1, 0, sampled=1),
        ChunkWork(1, 37, sampled=1),
        ChunkWork(1, 90, sampled=1),
    ],
    "prefill": [ChunkWork(33, 0, sampled=1)],
    "chunk": [ChunkWork(16, 48)],
    "mixed": [ChunkWork(1, 61, sampled=1), ChunkWork(25, 0, sampled=1), ChunkWork(9, 30)],
    "static": [ChunkWork(20, 0, padded_tokens=5, sampled=1), ChunkWork(1, 12, 0, 1, True)],
}


def run_linears(spec: ModelSpec, rows: int) -> None:
    attention, kv = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    shapes = [(attention, spec.hidden), (kv, spec.hidden), (kv, spec.hidden)]
    shapes += [(spec.hidden, attention), (spec.intermediate, spec.hidden)]
    shapes += [(spec.intermediate, spec.hidden), (spec.hidden, spec.intermediate)]
    for _ in range(spec.layers):
        for out, width in shapes:
            F.linear(torch.ones(rows, width), torch.ones(out, width))


def run_attention(spec: ModelSpec, context: int) -> None:
    """One query over `context` positions in every layer: scores, softmax, values."""
    for _ in range(spec.layers):
        query = torch.ones(spec.heads, 1, spec.head_dim)
        keys = torch.ones(spec.heads, context, spec.head_dim)
        torch.softmax(query @ keys.transpose(1, 2), -1) @ keys


def counted(chunks: Iterable[ChunkWork], spec: ModelSpec) -> tuple[int, int, int]:
    flops = {"linear": 0, "attention": 0, "head": 0}

    def measure(part: str, run: object, *args: object) -> None:
        with FlopCounterMode(display=False) as counter:
            run(*args)  # type: ignore[operator]
        flops[part] += counter.get_total_flops()

    for chunk in chunks:
        rows = chunk.tokens + chunk.padded_tokens
        measure("linear", run_linears, spec, rows)
        for position in range(chunk.start, chunk.start + rows):
            measure("attention", run_attention, spec, position + 1)
        if chunk.sampled:
            head = (torch.ones(1, spec.hidden), torch.ones(spec.vocab, spec.hidden))
            measure("head", F.linear, *head)
    return flops["linear"], flops["attention"], flops["head"]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("batch", BATCHES)
def test_counts_agree_with_torch(spec: ModelSpec, batch: str) -> None:
    cost = count_step(spec, BATCHES[batch], "fp32", "fp32")
    ours = (cost.linear_flops, cost.attention_flops, cost.head_flops)
    assert ours == pytest.approx(counted(BATCHES[batch], spec), rel=0.01)


def test_decode_attention_is_exact() -> None:
    spec, chunks = SPECS[0], BATCHES["decode"]
    cost = count_step(spec, chunks, "fp32", "fp32")
    assert (cost.linear_flops, cost.attention_flops, cost.head_flops) == counted(chunks, spec)
