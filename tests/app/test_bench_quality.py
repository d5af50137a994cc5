"""Quality as it is measured: forced through the engine's own decode path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from app.bench.driver import EngineDriver
from app.bench.quality import forced_log_probs, mean_kl, measure_quality
from engine.config import EngineConfig
from engine.sink import NullSink

pytestmark = pytest.mark.process


def driver(model: Path, dtype: str) -> EngineDriver:
    config = EngineConfig(model=str(model), dtype=dtype, threads=1, max_batch=8)
    return EngineDriver(config, NullSink())


@pytest.fixture(scope="module")
def fp32(tiny_model: Path) -> EngineDriver:
    return driver(tiny_model, "fp32")


PIECES = [[9, 200, 31, 4, 4000, 77], [1000, 5, 8, 13], [6, 7, 8, 9, 10, 11], [20, 30, 40]]


def test_forced_log_probs_are_those_of_the_text(fp32: EngineDriver, tiny_model: Path) -> None:
    models: Any = AutoModelForCausalLM
    model = models.from_pretrained(tiny_model)
    with torch.inference_mode():
        expected = [model(torch.tensor([p])).logits[0, :-1].log_softmax(-1) for p in PIECES]
    found = forced_log_probs(fp32, PIECES)
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-4)


def test_the_engine_samples_for_itself_again_afterwards(fp32: EngineDriver) -> None:
    before = fp32.generate([[9, 200, 31]], [4]).output_tokens
    backend = fp32.engine.backend
    forced_log_probs(fp32, PIECES)
    assert fp32.engine.backend is backend
    assert fp32.generate([[9, 200, 31]], [4]).output_tokens == before


def test_a_dtype_is_measured_against_the_reference(
    fp32: EngineDriver, tiny_model: Path, tmp_path: Path
) -> None:
    text = "Rivers run to the sea, and the sea is never full. " * 20
    reference = tmp_path / "reference.npy"
    exact = measure_quality(fp32, text, 32, reference, write=True)
    rounded = measure_quality(driver(tiny_model, "bf16"), text, 32, reference, write=False)
    assert exact["mean_kl"] == 0
    assert exact["tokens"] == rounded["tokens"] == 4 * 31
    assert 0 < rounded["mean_kl"] < 1e-2
    assert rounded["perplexity"] == pytest.approx(exact["perplexity"], rel=0.05)


def test_kl_sees_another_model(fp32: EngineDriver) -> None:
    found = forced_log_probs(fp32, PIECES)
    assert mean_kl(found, found.roll(1, dims=1)) > 1e-3
