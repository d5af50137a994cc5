"""int8 and int4 weights: how far they move the model, and when a step runs on which copy."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import quantisation as q
from engine.backends.cpu import CPUBackend
from engine.batch import Chunk, ScheduledBatch
from engine.models.config import LlamaConfig
from engine.models.weights import ModelSource
from engine.workloads.prompts import PromptSource
from kernels.linear.pack import dequantised
from kernels.simd.support import runs
from tests.engine.tiny_llama import (
    BLOCK_SIZE,
    SHAPES,
    TinyLlama,
    blocks_for,
    last_logits,
    make_runner,
    prompt,
    sequence,
    step,
    tables,
    tiny_llama,
)

vector = pytest.mark.skipif(not runs("int4"), reason="needs AVX-512 with bfloat16")
QUANTISED = ["int8", "int4"]
MEAN_KL = {"int8": 0.01, "int4": 0.02}
LENGTH = 200


@pytest.mark.parametrize("dtype", QUANTISED)
def test_a_step_reads_quantised_weights_up_to_the_limit(dtype: str) -> None:
    limit = q.few_rows_limit(dtype)
    assert limit is not None
    assert q.step_dtype(dtype, 1) == q.step_dtype(dtype, limit) == dtype
    assert q.step_dtype(dtype, limit + 1) == q.step_dtype(dtype, 4096) == "bf16"
    assert q.resident_dtypes(dtype) == (dtype, "bf16")
    assert q.math_dtype(dtype) == "bf16"


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_other_dtypes_have_one_copy_for_all_steps(dtype: str) -> None:
    assert q.few_rows_limit(dtype) is None
    assert {q.step_dtype(dtype, rows) for rows in (1, 4096)} == {dtype}
    assert q.resident_dtypes(dtype) == (dtype,)
    assert (q.math_dtype(dtype), q.counted_as(dtype), q.head_dtype(dtype)) == (dtype,) * 3


def test_the_head_of_int4_is_int8_and_its_groups_are_counted() -> None:
    assert (q.head_dtype("int4"), q.head_dtype("int8")) == ("int8", "int8")
    assert (q.counted_as("int4"), q.counted_as("int8")) == ("int4_g32", "int8")


@lru_cache
def tiny() -> TinyLlama:
    return tiny_llama(SHAPES["grouped, 64, tied"])


@lru_cache
def tiny_runner(dtype: str, limit: int | None = None) -> Any:
    """limit: rows up to which the quantised copy runs, in place of the usual."""
    runner: Any = make_runner("vector", tiny(), dtype, "fp32")
    if limit is not None:
        runner.model.few_rows_limit = limit
    return runner


@vector
@pytest.mark.parametrize("dtype", QUANTISED)
def test_the_copies_change_places_at_the_limit(dtype: str) -> None:
    limit = q.few_rows_limit(dtype)
    assert limit is not None
    always, never = tiny_runner(dtype, 1 << 30), tiny_runner(dtype, 0)
    for rows in range(1, limit + 3):
        tokens = prompt(tiny().config, rows)
        found = last_logits(tiny_runner(dtype), tokens)
        copies = [last_logits(runner, tokens) for runner in (always, never)]
        assert not torch.equal(*copies)
        assert torch.equal(found, copies[0] if rows <= limit else copies[1]), rows


@vector
@pytest.mark.parametrize("dtype", QUANTISED)
def test_rows_of_all_sequences_count(dtype: str) -> None:
    """Decodes of several sequences share a step, and so its weights."""
    limit = q.few_rows_limit(dtype)
    assert limit is not None
    always, never = tiny_runner(dtype, 1 << 30), tiny_runner(dtype, 0)
    for count in (limit, limit + 1):
        held = [
            sequence(prompt(tiny().config, 9, seed=i), table)
            for i, table in enumerate(tables(*[9] * count))
        ]
        prompts = [Chunk(s, 0, 8) for s in held]
        decodes = [Chunk(s, 8, 1) for s in held]
        found = []
        for runner in (tiny_runner(dtype), always if count <= limit else never):
            step(never, *prompts)
            runner.cache = _copied(never, runner)
            found.append(step(runner, *decodes))
        assert torch.equal(*found), count


def _copied(source: Any, target: Any) -> Any:
    """Both runners' caches hold the same."""
    for ours, theirs in zip(target.cache.layers, source.cache.layers, strict=True):
        ours[:] = theirs
    return target.cache


@dataclass(frozen=True)
class Dequantised:
    """The float32 model that a quantised one stands for. Its head is not its embedding."""

    model: TinyLlama
    dtype: str

    @property
    def config(self) -> LlamaConfig:
        return self.model.config

    def get(self, name: str) -> Tensor:
        weight = self.model.get(name)
        if weight.dim() == 1:
            return weight
        if "embed" in name:
            return weight.bfloat16().float()
        return dequantised(weight, q.head_dtype(self.dtype) if "lm_head" in name else self.dtype)


@vector
@pytest.mark.parametrize("dtype", QUANTISED)
def test_both_copies_are_the_weights_that_the_dtype_stands_for(dtype: str) -> None:
    """int8 multiplies float32 rows: it is exact. The others round rows, or weights, to bfloat16."""
    model = tiny_llama(SHAPES["alone, 32, untied"])
    tokens = prompt(model.config, 60)
    twin = make_runner("vector", Dequantised(model, dtype), "fp32", "fp32")
    exact = last_logits(twin, tokens)
    for limit, quantised in ((0, False), (1 << 30, True)):
        runner: Any = make_runner("vector", model, dtype, "fp32")
        runner.model.few_rows_limit = limit
        off = (last_logits(runner, tokens) - exact).abs().max() / exact.abs().max()
        assert off.item() < (1e-5 if dtype == "int8" and quantised else 0.03)
    rounding = (model.logits(tokens)[-1] - exact).abs().max() / exact.abs().max()
    assert rounding.item() > (0.1 if dtype == "int4" else 0.02)  # or nothing was at stake


# --- the real model ---


@pytest.fixture(scope="module")
def tokens(smollm: ModelSource) -> list[int]:
    return list(PromptSource(smollm.tokenizer).cut(LENGTH, random.Random(7)))


def every_logits(backend: CPUBackend, tokens: list[int], rows: int) -> Tensor:
    """float32 [tokens, vocab], computed in steps of so many rows."""
    held, found = sequence(tokens, range(blocks_for(len(tokens)))), []
    for start in range(0, len(tokens), rows):
        count = min(rows, len(tokens) - start)
        inputs = backend.prepare(ScheduledBatch([Chunk(held, start, count)]))
        inputs.sampled = np.arange(count)
        found.append(backend.forward(inputs).clone())
    return torch.cat(found)


@pytest.fixture(scope="module")
def exact(smollm_fp32: CPUBackend, tokens: list[int]) -> Tensor:
    """Log-probabilities in fp32, float64 [tokens, vocab]."""
    return torch.log_softmax(every_logits(smollm_fp32, tokens, LENGTH).double(), -1)


@vector
@pytest.mark.parametrize("dtype", QUANTISED)
def test_quantised_weights_stay_near_fp32(
    smollm: ModelSource, tokens: list[int], exact: Tensor, dtype: str
) -> None:
    """Mean KL divergence over a text: as decode runs it, and as prefill does."""
    limit = q.few_rows_limit(dtype)
    assert limit is not None
    backend = CPUBackend(
        smollm, dtype=dtype, kv_dtype="bf16", kv_slots=blocks_for(LENGTH) * BLOCK_SIZE
    )
    for rows in (limit, LENGTH):
        rounded = torch.log_softmax(every_logits(backend, tokens, rows).double(), -1)
        divergence = (exact.exp() * (exact - rounded)).sum(-1)
        assert 0 < divergence.mean().item() < MEAN_KL[dtype], f"{rows} rows"
        assert (exact.argmax(-1) == rounded.argmax(-1)).double().mean().item() > 0.9
