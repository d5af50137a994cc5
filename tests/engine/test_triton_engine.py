"""The whole engine on the Triton path, in Triton's interpreter: the tokens of torch's path."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from engine.backends.cuda_graphs import graph_sizes
from engine.physics.kernel_cost import KERNELS


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.engine.triton_child"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def greedy(run: dict[str, Any]) -> dict[str, list[int]]:
    return {name: tokens for name, tokens in run["tokens"].items() if name != "3"}


def test_tokens_are_those_of_the_reference_path(runs: dict[str, Any]) -> None:
    """Prompts in chunks of five beside decodes, one preempted; and a static cohort that pads."""
    assert [len(tokens) for tokens in runs["torch"]["tokens"].values()] == [7, 10, 8, 9]
    for name in ("tight", "calm"):
        assert greedy(runs[name]) == greedy(runs["torch"]), name
    assert runs["tight"]["preemptions"] > 0
    assert set(runs["tight"]["phases"]) == {"prefill", "mixed", "decode"}
    assert runs["calm"]["padded"] > 0


def test_a_seeded_request_gets_the_same_tokens_under_every_schedule(runs: dict[str, Any]) -> None:
    """Its randomness is a function of its seed and of how many tokens it has, of nothing else."""
    assert runs["tight"]["tokens"]["3"] == runs["calm"]["tokens"]["3"]
    assert runs["tight"]["tokens"]["3"] != runs["torch"]["tokens"]["3"]  # it does sample


def test_decodes_stay_on_the_device(runs: dict[str, Any]) -> None:
    """A step after a step of the same decodes loads nothing; new blocks are added."""
    counts = runs["decodes"]
    assert 0 < counts["_load"] < counts["prepare"]
    assert counts["_grow"] > 0


def test_timed_steps_name_every_kernel(runs: dict[str, Any]) -> None:
    """With a plain clock: on a GPU the same marks are events."""
    for name in ("tight", "calm", "torch"):
        assert runs[name]["kernels"] == sorted(KERNELS), name


@pytest.mark.parametrize("dtype", ["int8", "int4", "fp16"])
def test_other_dtypes_give_the_tokens_of_their_weights(runs: dict[str, Any], dtype: str) -> None:
    """Quantised weights by few rows, their dense copies by a prompt; fp16 with an fp8 cache."""
    assert len(runs[dtype]["found"]) == 4
    assert runs[dtype]["found"] == runs[dtype]["expected"]


def test_graph_sizes() -> None:
    assert graph_sizes(1) == [1]
    assert graph_sizes(16) == [1, 2, 4, 8, 16]
    assert graph_sizes(40) == [1, 2, 4, 8, 16, 32, 40]
    assert graph_sizes(16, few_rows=6) == [1, 2, 4, 6, 8, 16]
    assert graph_sizes(3) == [1, 2, 3]
