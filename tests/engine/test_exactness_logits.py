"""Logits bit for bit: a token's are the same in any chunk, any batch, and any blocks.

The reference computes one token a step, alone. Then the same tokens run in random chunks, beside
random neighbours, in scattered blocks. On torch's kernels, which promise less, the same cases stay
within rounding.
"""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from engine.backends.cpu import CPUBackend
from engine.batch import Chunk, ScheduledBatch
from engine.models.weights import ModelSource
from engine.request import Request
from engine.sequence import Sequence
from tests.engine.exactness import BLOCK_SIZE, SEED
from tests.engine.random_model import random_model
from tests.engine.ties import exact, logits_by_decoding, place

BLOCKS = 64
# Of torch's kernels, in logits of up to ±7 (random models) and ±30: some roundings of the dtype.
NEAR, NEAR_DEFAULT = {"fp32": 1e-4, "bf16": 0.5}, {"fp32": 1e-3, "bf16": 1.5}


class Laboratory:
    """Puts chunks of sequences together into steps, with blocks of its own choice."""

    def __init__(self, backend: CPUBackend, vocab: int, rng: random.Random) -> None:
        self.backend, self.vocab, self.rng = backend, vocab, rng
        self.blocks = rng.sample(range(BLOCKS), BLOCKS)  # scattered

    def take(self, tokens: int) -> list[int]:
        count = -(-tokens // BLOCK_SIZE)
        taken, self.blocks = self.blocks[:count], self.blocks[count:] + self.blocks[:count]
        return taken

    def neighbours(self) -> list[Chunk]:
        """Up to six sequences that decode or have prompts of their own, cold or half computed."""
        found = []
        for number in range(1, self.rng.randint(1, 7)):
            tokens = tuple(self.rng.choices(range(self.vocab), k=self.rng.randint(1, 30)))
            other = place(Sequence(number, Request(tokens)), self.take(len(tokens)))
            start = self.rng.choice((0, len(tokens) - 1, self.rng.randrange(len(tokens))))
            if start:  # what it computed before
                before = place(Sequence(number, Request(tokens[:start])), other.block_table)
                self.forward([Chunk(before, 0, start)])
            found.append(Chunk(other, start, len(tokens) - start))
        return found

    def forward(self, chunks: list[Chunk]) -> Tensor:
        logits: Tensor = self.backend.forward(self.backend.prepare(ScheduledBatch(chunks)))
        return logits.clone()

    def in_chunks(self, tokens: list[int]) -> dict[int, Tensor]:
        """Run the tokens in random chunks beside neighbours; logits by the end of each chunk."""
        own, start = self.take(len(tokens)), 0
        found: dict[int, Tensor] = {}
        while start < len(tokens):
            size = self.rng.choice((1, 7, 64, 512, self.rng.randint(1, len(tokens))))
            end = min(len(tokens), start + size)
            sequence = place(Sequence(0, Request(tuple(tokens[:end]))), own)
            chunks = [*self.neighbours(), Chunk(sequence, start, end - start)]
            self.rng.shuffle(chunks)
            at = next(i for i, c in enumerate(chunks) if c.sequence is sequence)
            found[end] = self.forward(chunks)[at]
            start = end
        return found


def check(
    backend: CPUBackend, dtype: str, vocab: int, length: int, cases: int, near: float
) -> None:
    rng = random.Random(SEED)
    tokens = rng.choices(range(vocab), k=length)
    expected = logits_by_decoding(backend, tokens)
    compared = 0
    for _ in range(cases):
        laboratory = Laboratory(backend, vocab, rng)
        for end, logits in laboratory.in_chunks(tokens).items():
            if exact(backend, dtype):
                assert torch.equal(logits, expected[end - 1]), f"other bits after {end} tokens"
            assert (logits - expected[end - 1]).abs().max().item() < near
            compared += 1
    assert compared >= 2 * cases


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize(("head_dim", "heads", "kv_heads"), [(32, 6, 2), (64, 3, 1), (32, 4, 4)])
@pytest.mark.parametrize(
    ("dtype", "kv_dtype"), [("fp32", "fp32"), ("fp32", "bf16"), ("bf16", "bf16")]
)
def test_a_small_model(
    smollm: ModelSource,
    dtype: str,
    kv_dtype: str,
    head_dim: int,
    heads: int,
    kv_heads: int,
    kernels: str,
) -> None:
    source = random_model(smollm, head_dim, heads, kv_heads)
    backend = CPUBackend(
        source, dtype=dtype, kv_dtype=kv_dtype, kv_slots=BLOCKS * BLOCK_SIZE, kernels=kernels
    )
    cases = 60 if backend.kernels == "vector" else 10
    check(backend, dtype, source.config.vocab, length=150, cases=cases, near=NEAR[kv_dtype])


def test_the_default_model_in_fp32(smollm: ModelSource, smollm_fp32: CPUBackend) -> None:
    check(smollm_fp32, "fp32", smollm.config.vocab, 60, cases=5, near=NEAR_DEFAULT["fp32"])


def test_the_default_model_in_bf16(smollm: ModelSource, smollm_bf16: CPUBackend) -> None:
    check(smollm_bf16, "bf16", smollm.config.vocab, 60, cases=5, near=NEAR_DEFAULT["bf16"])
