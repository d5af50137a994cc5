"""Every worked value of golden/physics.json, through one table from quantity to function."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.physics import roofline, sizing
from engine.physics.model_spec import ModelSpec
from engine.physics.roofline import DecodeModel

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
SHARED = Path(__file__).resolve().parents[4] / "shared" / "golden"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "physics.json").read_text())["cases"]


def dense(i: dict[str, Any]) -> DecodeModel:
    total: float = i["total_params"] if "total_params" in i else i["params"]
    return DecodeModel(total, i.get("active_params", total), i["bytes_per_param"])


def max_batch(i: dict[str, Any]) -> sizing.MaxBatch:
    model = DecodeModel(i["weight_bytes"], i["active_params"], 1, i["kv_bytes_per_token"])
    return sizing.max_batch_for_tpot(
        model, i["context"], i["tpot_slo"], i["peak_flops"], i["bandwidth"], i["memory_bytes"]
    )


def per_token(i: dict[str, Any]) -> float:
    names = ("layers", "kv_heads", "head_dim", "bytes_per_element")
    return sizing.kv_bytes_per_token(*(i[name] for name in names))


QUANTITIES: dict[str, Callable[[dict[str, Any]], float]] = {
    "ridge_intensity": lambda i: roofline.ridge_intensity(i["peak_flops"], i["bandwidth"]),
    "weight_stream_time": lambda i: roofline.weight_stream_time_s(
        i["params"], i["bytes_per_param"], i["bandwidth"]
    ),
    "compute_time": lambda i: roofline.compute_time_s(
        i["active_params"], i["batch"], i["peak_flops"]
    ),
    "memory_to_compute_ratio": lambda i: roofline.memory_to_compute_ratio(
        dense(i), i["batch"], 0, i["peak_flops"], i["bandwidth"]
    ),
    "decode_intensity": lambda i: roofline.decode_intensity(dense(i), i["batch"], i["context"]),
    "crossover_batch": lambda i: roofline.crossover_batch(
        dense(i), i["peak_flops"], i["bandwidth"]
    ),
    "end_to_end_latency": lambda i: roofline.end_to_end_latency_s(
        i["ttft"], i["tpot"], i["output_tokens"]
    ),
    "static_wasted_slot_step_fraction": lambda i: sizing.static_wasted_slot_step_fraction(
        i["output_tokens"], i["slots"]
    ),
    "single_stream_ceiling": lambda i: roofline.single_stream_ceiling(
        i["params"], i["bytes_per_param"], i["bandwidth"]
    ),
    "kv_bytes_per_token": per_token,
    "kv_bytes": lambda i: sizing.kv_bytes(per_token(i), i["tokens"]),
    "kv_capacity_bytes": lambda i: sizing.kv_capacity_bytes(
        i["memory_bytes"], i["weight_bytes"], i["reserve_bytes"]
    ),
    "max_batch_for_tpot": lambda i: max_batch(i).batch,
    "attention_flops_ratio": lambda i: roofline.attention_flops_ratio(i["length_a"], i["length_b"]),
}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_golden_value(case: dict[str, Any]) -> None:
    assert QUANTITIES[case["quantity"]](case["inputs"]) == pytest.approx(
        case["value"], rel=case["rel_tol"], abs=0
    )


def test_every_quantity_of_the_table_is_used_and_none_is_missing() -> None:
    assert {case["quantity"] for case in CASES} == set(QUANTITIES)


def test_the_binding_limit_of_the_50_ms_target_is_named() -> None:
    case = next(case for case in CASES if case["quantity"] == "max_batch_for_tpot")
    answer = max_batch(case["inputs"])
    assert answer.limit == "capacity"
    assert answer.limits == {"slo_memory": 288, "slo_compute": 1250, "capacity": 122}


@pytest.mark.parametrize("name", ["physics.json", "models.csv", "devices.csv"])
def test_the_copies_are_the_shared_files(name: str) -> None:
    if not SHARED.is_dir():
        pytest.skip("no shared folder beside this checkout")
    assert (GOLDEN / name).read_bytes() == (SHARED / name).read_bytes()


def gqa_rows() -> list[dict[str, str]]:
    with (GOLDEN / "models.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["kv_heads"] and row["head_dim"]]


@pytest.mark.parametrize("row", gqa_rows(), ids=lambda row: row["name"])
def test_kv_column_of_the_model_table(row: dict[str, str]) -> None:
    kv_heads = int(row["kv_heads"])
    spec = ModelSpec(
        name=row["name"],
        layers=int(row["layers"]),
        hidden=64,
        intermediate=64,
        heads=kv_heads,
        kv_heads=kv_heads,
        head_dim=int(row["head_dim"]),
        vocab=64,
        tied_embeddings=True,
        max_context=64,
    )
    assert spec.kv_bytes_per_token(2) == int(row["kv_bytes_per_token_bf16"])
