"""The golden cases and the published series, out of `stepscope whatif` itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.physics.catalogue import find_model
from tests.app.asking import found

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "physics.json"
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case for case in json.loads(GOLDEN.read_text())["cases"]
}

# --- golden/physics.json: a case's inputs become options, its quantity a key of the answer ---

WIDTHS = {1: "fp8", 2: "bf16"}
OPTIONS: dict[str, Callable[[Any], tuple[str, object]]] = {
    "peak_flops": lambda v: ("--peak-tflops", v / 1e12),
    "bandwidth": lambda v: ("--bandwidth-gb", v / 1e9),
    "memory_bytes": lambda v: ("--memory-gb", v / 1e9),
    "active_params": lambda v: ("--active-params", v),
    "batch": lambda v: ("--batch", v),
    "context": lambda v: ("--context", v),
    "tokens": lambda v: ("--context", v),
    "tpot_slo": lambda v: ("--tpot-slo", v * 1e3),
    "kv_bytes_per_token": lambda v: ("--kv-bytes-per-token", v),
}
KEYS: dict[str, Callable[[dict[str, Any]], float]] = {
    "ridge_intensity": lambda a: a["ridge"],
    "weight_stream_time": lambda a: a["t_weights_s"],
    "compute_time": lambda a: a["t_compute_s"],
    "memory_to_compute_ratio": lambda a: a["memory_over_compute"],
    "decode_intensity": lambda a: a["intensity"],
    "crossover_batch": lambda a: a["b_star"],
    "single_stream_ceiling": lambda a: a["single_stream_tokens_per_s"],
    "kv_bytes_per_token": lambda a: a["kv_bytes_per_token"],
    "kv_bytes": lambda a: a["kv_bytes"],
    "kv_capacity_bytes": lambda a: a["memory"]["kv_room_bytes"],
    "max_batch_for_tpot": lambda a: a["max_batch"],
}
NOT_A_QUESTION = {
    "end_to_end_latency": "TTFT and TPOT are answers of the command, not options",
    "static_wasted_slot_step_fraction": "about a scheduler, not about one step",
    "attention_flops_ratio": "of full attention; the command counts causal attention exactly",
}
SHAPE = {"layers", "kv_heads", "head_dim", "bytes_per_element"}
MODEL = {"params", "total_params", "bytes_per_param", "weight_bytes", "reserve_bytes"}
ASKED = [case for case in CASES.values() if case["quantity"] not in NOT_A_QUESTION]


def model_options(i: dict[str, Any]) -> list[object]:
    """The model of a case: by name where its shape is given, else by its size."""
    if set(i) >= SHAPE:
        spec = find_model("llama-3.1-8b").spec
        assert spec is not None
        assert (spec.layers, spec.kv_heads, spec.head_dim) == (32, 8, 128)
        assert [i[name] for name in sorted(SHAPE)] == [2, 128, 8, 32]
        return ["--model", "llama-3.1-8b"]
    params = i.get("total_params") or i.get("params") or i.get("active_params") or 70e9
    width = i.get("bytes_per_param") or i.get("weight_bytes", 2 * params) / params
    return ["--params", params, "--dtype", WIDTHS[width]]


def options(case: dict[str, Any]) -> list[object]:
    """The options that say a case's inputs."""
    inputs = case["inputs"]
    words = model_options(inputs)
    for name in sorted(set(inputs) - SHAPE - MODEL):
        words += OPTIONS[name](inputs[name])
    return words


@pytest.mark.parametrize("case", ASKED, ids=[case["id"] for case in ASKED])
def test_golden_value(case: dict[str, Any]) -> None:
    answer = found(*options(case))
    assert KEYS[case["quantity"]](answer) == pytest.approx(
        case["value"], rel=case["rel_tol"] or 1e-12, abs=0
    )


def test_every_case_is_asked_or_said_to_be_no_question() -> None:
    assert {case["quantity"] for case in CASES.values()} == set(KEYS) | set(NOT_A_QUESTION)
    assert len(ASKED) == len(CASES) - 3


def test_the_articles_target_names_every_limit() -> None:
    answer = found(*options(CASES["slo_50ms_8b_4k"]))
    assert answer["max_batch_limit"] == "capacity"
    assert answer["max_batch_limits"] == {"slo_memory": 288, "slo_compute": 1250, "capacity": 122}


@pytest.mark.parametrize(
    ("line", "key", "stated", "within"),
    [
        ("--model llama-3.1-70b --dtype fp16", "t_memory_s", 0.042, 0.01),
        ("--model llama-3.1-70b --dtype fp16", "t_compute_s", 0.14e-3, 0.02),
        ("--model llama-3.1-70b --dtype fp16", "ridge", 295, 0.005),
        ("--model llama-3.1-70b --dtype fp16", "memory_over_compute", 300, 0.02),
        ("--model llama-3.1-70b --dtype fp8", "t_memory_s", 0.021, 0.01),
        ("--model llama-3.1-70b --dtype fp8", "single_stream_tokens_per_s", 48, 0.02),
        ("--model llama-3.1-70b --dtype fp8", "b_star", 148, 0.005),
        ("--model llama-3.1-70b --dtype fp8 --math-dtype fp8", "b_star", 295, 0.005),
        ("--model llama-3.1-8b", "t_memory_s", 4.8e-3, 0.01),
        ("--model llama-3.1-8b", "single_stream_tokens_per_s", 210, 0.01),
        ("--model llama-3.1-8b --batch 16 --context 32768", "kv_bytes", 64 * 2**30, 1e-9),
        ("--model llama-3.1-8b --device h200", "ridge", 206, 0.005),
        ("--model llama-3.1-8b --device b200", "ridge", 280, 0.01),
        ("--model llama-3.1-8b --context 4000 --tpot-slo 50", "max_batch", 122, 0.01),
        ("--model deepseek-v4-pro", "b_star", 9640, 0.005),
        ("--model deepseek-v3", "kv_bytes_per_token", 70272, 0),
    ],
)
def test_the_articles_prose_by_the_names_of_the_catalogue(
    line: str, key: str, stated: float, within: float
) -> None:
    assert found(*line.split())[key] == pytest.approx(stated, rel=within)


@pytest.mark.parametrize(
    ("batch", "published_ms"),
    [(1, 4.98), (8, 12.13), (16, 20.30), (32, 36.65), (64, 69.33), (240, 249.09)],
)
def test_the_jax_scaling_books_series(batch: int, published_ms: float) -> None:
    line = "--model llama-2-13b --device tpu-v5e --tensor-parallel 8 --context 8192"
    free_links = ("--link-bandwidth-gb", 1e6)  # the book leaves them out
    how = ("--composition", "additive-kv")
    answer = found(*line.split(), *free_links, *how, "--batch", batch)
    assert answer["t_step_s"] * 1e3 == pytest.approx(published_ms, rel=0.02)
    assert answer["composition"] == "additive-kv"
