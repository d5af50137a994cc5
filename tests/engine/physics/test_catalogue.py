"""The catalogue against the golden tables, and what it says to bad input."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.errors import UserError
from engine.physics.catalogue import (
    CatalogueModel,
    Device,
    devices,
    find_device,
    find_model,
    models,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def rows(file: str) -> list[dict[str, str]]:
    with (GOLDEN / file).open() as text:
        return list(csv.DictReader(text))


def number(cell: str, unit: float) -> float | None:
    return float(cell) * unit if cell else None


@pytest.mark.parametrize("row", rows("devices.csv"), ids=lambda row: row["name"])
def test_device_has_the_datasheet_rates(row: dict[str, str]) -> None:
    device = find_device(row["name"])
    bf16 = number(row["bf16_dense_tflops"], 1e12)
    assert device.peak_flops["bf16"] == device.peak_flops["fp16"] == bf16
    assert device.peak_flops.get("fp8") == number(row["fp8_dense_tflops"], 1e12)
    assert device.bandwidth == number(row["bandwidth_gb_s"], 1e9)
    assert device.memory_bytes == number(row["memory_gb"], 1e9)
    reached = number(row["achievable_bf16_matmul_tflops"], 1e12)
    expected = reached and pytest.approx(reached / device.peak_flops["bf16"], rel=1e-3)
    assert device.matmul_fraction == expected


@pytest.mark.parametrize("device", devices().values(), ids=lambda device: device.name)
def test_rates_are_dense_and_every_value_has_its_source(device: Device) -> None:
    known = {f for f in ("link_bandwidth", "matmul_fraction") if getattr(device, f) is not None}
    assert set(device.sources) == {"peak_flops", "bandwidth", "memory_bytes"} | known
    assert all(len(source) > 8 for source in device.sources.values())
    fp8 = device.peak_flops.get("fp8")
    assert fp8 is None or fp8 / device.peak_flops["bf16"] == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("row", rows("models.csv"), ids=lambda row: row["name"])
def test_model_has_the_published_numbers(row: dict[str, str]) -> None:
    model = find_model(row["name"])
    assert model.total_params == pytest.approx(float(row["total_params_b"]) * 1e9)
    assert model.active_params == pytest.approx(float(row["active_params_b"]) * 1e9)
    if model.spec is None:
        assert not row["kv_bytes_per_token_bf16"]
        return
    assert model.spec.kv_bytes_per_token(2) == int(row["kv_bytes_per_token_bf16"])
    assert model.spec.layers == int(row["layers"])
    if row["kv_heads"]:
        heads = model.spec.kv_heads, model.spec.head_dim
        assert heads == (int(row["kv_heads"]), int(row["head_dim"]))


@pytest.mark.parametrize(
    "model", [m for m in models().values() if m.spec], ids=lambda model: model.name
)
def test_counted_parameters_come_to_the_published(model: CatalogueModel) -> None:
    assert model.spec is not None
    assert model.spec.total_params == pytest.approx(model.total_params, rel=0.01)
    assert model.spec.active_params == pytest.approx(model.active_params, rel=0.03)
    assert model.spec.name == model.name
    assert model.max_context == model.spec.max_context


def test_a_model_without_a_formula_says_why() -> None:
    model = find_model("deepseek-v4-pro")
    assert model.spec is None
    assert model.max_context is None
    assert "no formula for the KV cache" in str(model.unknown)


def test_unknown_names_get_the_nearest_and_the_list() -> None:
    with pytest.raises(UserError, match=r"unknown device 'h100-sx': .*h200.*mean 'h100-sxm'"):
        find_device("h100-sx")
    with pytest.raises(UserError, match=r"unknown model 'lama-3.1-8b': .*mean 'llama-3.1-8b'"):
        find_model("lama-3.1-8b")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "Qwen/Qwen3-8B"])
def test_any_name_gets_an_answer(name: str) -> None:
    with pytest.raises(UserError, match="unknown model"):
        find_model(name)


def test_a_rate_that_is_not_known_is_refused() -> None:
    with pytest.raises(UserError, match=r"no fp8 rate is known for NVIDIA A100.*use bf16 or fp16"):
        find_device("a100-sxm-80gb").peak("fp8")
    assert find_device("h100-sxm").peak("fp8") == 1979e12


def test_nobody_can_change_the_catalogue() -> None:
    with pytest.raises(TypeError):
        devices()["mine"] = find_device("l4")  # type: ignore[index]
    with pytest.raises(ValidationError, match="frozen"):
        find_device("l4").bandwidth = 1.0  # type: ignore[misc]


SOURCES = {"peak_flops": "a", "bandwidth": "b", "memory_bytes": "c"}


def device(**changes: object) -> Device:
    raw = {
        "name": "d",
        "title": "D",
        "peak_flops": {"bf16": 1e12},
        "bandwidth": 1e12,
        "memory_bytes": 1e9,
        "sources": SOURCES,
        **changes,
    }
    return Device(**raw)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bandwidth": -1.0}, "greater than 0"),
        ({"memory_bytes": float("inf")}, "finite"),
        ({"matmul_fraction": 1.1}, "less than or equal to 1"),
        ({"peak_flops": {"fp8": 1e12}}, "needs bf16"),
        ({"peak_flops": {"bf16": 0.0}}, "above 0"),
        ({"link_bandwidth": 1e9}, "link_bandwidth has no source"),
        ({"sparse_flops": 1e12}, "Extra inputs"),
    ],
)
def test_a_device_that_cannot_be_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        device(**changes)


def test_a_model_that_cannot_be_is_refused() -> None:
    sources = {"total_params": "a", "active_params": "b"}
    numbers = {"name": "m", "title": "M", "total_params": 10.0, "sources": sources}
    with pytest.raises(ValidationError, match="more than total_params"):
        CatalogueModel(**numbers, active_params=11.0, unknown="why")
    with pytest.raises(ValidationError, match="a shape or why it is unknown"):
        CatalogueModel(**numbers, active_params=1.0)
