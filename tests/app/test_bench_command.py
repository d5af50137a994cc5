"""`stepscope bench` from end to end on a tiny model: its shape, never its timings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from platformdirs import user_cache_dir
from rich.console import Console

from app.bench.report import print_report
from tests.commands import Command

pytestmark = pytest.mark.process


@pytest.fixture
def command(stepscope: Path, tmp_path: Path) -> Command:
    folder = tmp_path / "here"
    folder.mkdir()
    return Command(stepscope, folder)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is cached already, so that nothing is measured twice; what is added goes with it."""
    folder = tmp_path / "cache"
    folder.mkdir()
    for known in Path(user_cache_dir("stepscope")).glob("*"):
        if known.name != "peers":
            (folder / known.name).symlink_to(known)
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def peers(tmp_path: Path) -> Path:
    """This environment has transformers, too."""
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "transformers").symlink_to(sys.prefix)
    return folder


def check_spread(row: dict[str, Any], key: str) -> None:
    assert 0 < row[f"{key}_low"] <= row[key] <= row[f"{key}_high"]


def test_every_part_on_a_tiny_model(command: Command, tiny_model: Path, own_cache: Path) -> None:
    common = ("--model", tiny_model, "--threads", 1, "--repeats", 1, "--dtype", "bf16")
    ended = command.run("bench", *common, "--json", "--out", "result.json")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert json.loads((command.folder / "result.json").read_text()) == result
    assert result["machine"]["threads"] == 1
    assert set(result["machine"]["peaks"]) == {"bf16", "fp32"}
    assert isinstance(result["clean"], bool)
    _check_ours(result)
    _check_between_dtypes(result)
    print_report(result, Console(quiet=True))  # every row has what its table shows


def test_beside_another_library(
    command: Command, tiny_model: Path, own_cache: Path, peers: Path
) -> None:
    common = ("--model", tiny_model, "--threads", 1, "--repeats", 2, "--dtype", "bf16", "--json")
    beside = ("--only", "prefill", "--against", "transformers", "--peers", peers)
    ended = command.run("bench", *common, *beside)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    (row,) = result["against"]["transformers"]["bf16"]["prefill"]
    assert row["tokens"] == 128
    assert row["rounds"] == 2
    check_spread(row, "time_ratio")
    assert row["tokens_ratio_low"] == pytest.approx(1 / row["time_ratio_high"])
    print_report(result, Console(quiet=True))
    assert [p.name[-5:] for p in (own_cache / "peers").iterdir()] == ["-bf16"]


def _check_ours(result: dict[str, Any]) -> None:
    assert [row["batch"] for row in result["decode"]] == [1, 2, 4, 8, 16, 32]
    for row in result["decode"]:
        check_spread(row, "step_s")
        assert row["tokens_per_s"] == pytest.approx(row["batch"] / row["step_s"])
        assert row["mbu"] > 0
        assert row["mfu"] > 0
    assert [row["tokens"] for row in result["prefill"]] == [128]  # its context ends at 512
    assert [(row["workload"], row["scheduler"]) for row in result["clients"]] == [
        (load, scheduler) for load in ("w16", "B") for scheduler in ("continuous", "chunked")
    ]
    assert {row["output_tokens"] for row in result["clients"]} == {745, 1945}
    crossover = result["crossover"][0]
    assert set(crossover["cost_s_per_token"]) == {"1", "2", "4", "8", "16", "32", "64", "128"}
    assert crossover["measured"] > 0
    assert crossover["b_star_with_kv"] or crossover["b_star_with_kv_reason"]
    telemetry = result["telemetry"][0]
    assert result["telemetry_overhead"] == telemetry["overhead"]
    assert telemetry["low"] <= telemetry["overhead"] <= telemetry["high"]
    assert telemetry["least"] <= telemetry["low"]
    assert telemetry["high"] <= telemetry["greatest"]
    assert telemetry["engine_s"] > 0
    assert telemetry["sender_s"] >= 0  # counted in ticks of 10 ms
    assert result["startup"][0]["first_token_s"] > 0
    assert result["memory"][0]["after_bytes"] > 0


def _check_between_dtypes(result: dict[str, Any]) -> None:
    quality = {row["dtype"]: row for row in result["quality"]}
    assert set(quality) == {"fp32", "bf16"}
    assert quality["fp32"]["mean_kl"] == 0
    assert quality["bf16"]["mean_kl"] < 1e-2
    assert quality["bf16"]["tokens"] > 1000
    linears = {row["dtype"]: row for row in result["linears"]}
    assert linears["bf16"]["linears_speedup"] == 1
    assert all(row["time_s"] < row["step_s"] for row in linears.values())


def test_bad_input_is_one_line(command: Command, tiny_model: Path, tmp_path: Path) -> None:
    bench = ("bench", "--model", tiny_model)
    assert "bf61" in command.refuses(*bench, "--dtype", "bf61")
    assert "repeats is 0" in command.refuses(*bench, "--repeats", 0)
    told = command.refuses(*bench, "--against", "vllm", "--peers", tmp_path)
    assert "vllm is not installed in" in told
    assert "pip install" in told
    assert "no model at 'nowhere'" in command.refuses("bench", "--model", "nowhere")
    assert "no folder" in command.refuses(*bench, "--out", "a/b.json")
