"""The probe at load: it finds kernels that vary, and says so in the run's config."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.backends.base import Backend
from engine.backends.cpu import CPUBackend
from engine.batch import Chunk, ScheduledBatch, StepOutput
from engine.build import build_engine
from engine.config import EngineConfig
from engine.models.weights import ModelSource
from engine.physics.model_spec import ModelSpec
from engine.row_invariance import RowInvariance, probe
from engine.sink import NullSink
from tests.engine.random_model import random_model

SLOTS, BLOCK_SIZE = 64, 16
Rounding = Callable[[ScheduledBatch, Chunk], float]


class Fake(Backend):
    """Logits are a function of the context, read from its cache, plus a rounding of our choice."""

    name = "fake"

    def __init__(self, rounding: Rounding) -> None:
        self._rounding = rounding
        self._cache = torch.zeros(SLOTS, dtype=torch.float64)

    def prepare(self, batch: ScheduledBatch) -> ScheduledBatch:
        return batch

    def forward(self, inputs: ScheduledBatch) -> Tensor:
        return torch.stack([self._logits(inputs, c) for c in inputs.chunks if c.samples])

    def _logits(self, batch: ScheduledBatch, chunk: Chunk) -> Tensor:
        slots = torch.from_numpy(chunk.sequence.slots)
        tokens = torch.tensor(chunk.sequence.token_ids[chunk.start : chunk.end])
        self._cache[slots[chunk.start : chunk.end]] = tokens.double()
        context = self._cache[slots[: chunk.end]].sum() * 1e-3
        return torch.stack([context, -context]) + self._rounding(batch, chunk)

    def sample(self, batch: ScheduledBatch, logits: Tensor) -> StepOutput:
        raise AssertionError("the probe samples nothing")

    def forget(self, request_id: int) -> None:
        raise AssertionError("the probe has no requests")


def rows(batch: ScheduledBatch) -> int:
    return sum(c.rows for c in batch.chunks)


@pytest.fixture
def spec(smollm: ModelSource) -> ModelSpec:
    return smollm.config.spec()


@pytest.mark.parametrize(
    ("rounding", "row_invariant", "chunk_invariant"),
    [
        (lambda batch, chunk: 0.0, True, True),
        (lambda batch, chunk: 1e-6 * rows(batch), False, False),
        (lambda batch, chunk: 1e-6 * len(batch.chunks), False, True),
        (lambda batch, chunk: 1e-6 * chunk.rows, True, False),
        (lambda batch, chunk: 1e-6 * (chunk.rows == 1), True, False),  # decodes alone are other
        (lambda batch, chunk: 1e-6 * (rows(batch) <= 4), False, False),  # as int8 weights
        (lambda batch, chunk: 1e-6 * (chunk.rows == 1 < rows(batch)), False, True),
    ],
)
def test_kernels_that_vary_are_found(
    spec: ModelSpec, rounding: Rounding, row_invariant: bool, chunk_invariant: bool
) -> None:
    found = probe(Fake(rounding), spec, SLOTS, BLOCK_SIZE)
    assert found == RowInvariance(row_invariant, chunk_invariant)


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_any_block_size_will_do(spec: ModelSpec, block_size: int) -> None:
    assert probe(Fake(lambda *_: 0.0), spec, SLOTS, block_size) == RowInvariance(True, True)


def test_a_cache_of_one_block_is_not_tried(spec: ModelSpec) -> None:
    assert probe(Fake(lambda *_: 0.0), spec, 16, 16) == RowInvariance(None, None)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8", "int4"])
def test_the_vector_kernels_keep_what_they_promise(smollm: ModelSource, dtype: str) -> None:
    """Except that int8 and int4 run on bf16 copies of the weights beyond a few rows."""
    source = random_model(smollm, 32, 6, 2)
    kv_dtype = "fp32" if dtype == "fp32" else "bf16"
    try:
        backend = CPUBackend(
            source, dtype=dtype, kv_dtype=kv_dtype, kv_slots=SLOTS, kernels="vector"
        )
    except ValueError as error:
        pytest.skip(str(error))
    same = dtype in ("fp32", "bf16")
    found = probe(backend, source.config.spec(), SLOTS, BLOCK_SIZE)
    assert found == RowInvariance(same, same)


def test_the_run_says_what_was_found(tiny_model: Path) -> None:
    config = EngineConfig(
        model=str(tiny_model), dtype="fp32", kv_dtype="fp32", threads=1, kv_blocks=8
    )
    built = build_engine(config, NullSink(), lambda _: None, lambda *_: None)
    details = json.loads(built.run.config)
    assert details["row_invariant"] in (True, False)
    assert details["chunk_invariant"] in (True, False)
