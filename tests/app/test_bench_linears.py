"""bench's time of the linear layers alone, on either kind of kernels."""

from __future__ import annotations

from typing import Any

import pytest

from app.bench.linears import WARM_UP, linears_time_s
from engine.batch import Chunk
from kernels.simd.support import runs
from tests.engine.tiny_llama import SHAPES, make_runner, prompt, sequence, step, tiny_llama

KINDS = [
    "torch",
    pytest.param("vector", marks=pytest.mark.skipif(not runs("bf16"), reason="needs AVX-512")),
]


@pytest.mark.parametrize("kernels", KINDS)
def test_each_pass_has_a_time(kernels: str) -> None:
    model = tiny_llama(SHAPES["grouped, 64, tied"])
    runner = make_runner(kernels, model, "bf16", "bf16")
    step(runner, Chunk(sequence(prompt(model.config, 1), [0]), 0, 1))
    times = linears_time_s(runner, 5)
    assert len(times) == 5
    assert min(times) > 0


@pytest.mark.skipif(not runs("bf16"), reason="needs AVX-512")
def test_the_vector_kernels_run_linear_layers_and_the_head_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kernels.llama_step.fields import Part

    model = tiny_llama(SHAPES["grouped, 64, tied"])
    runner: Any = make_runner("vector", model, "bf16", "bf16")
    step(runner, Chunk(sequence(prompt(model.config, 1), [0]), 0, 1))
    seen: list[Part] = []
    monkeypatch.setattr(runner.model, "run_again", seen.append)
    linears_time_s(runner, 4)
    assert seen == [Part.LINEARS | Part.HEAD] * (WARM_UP + 4)
