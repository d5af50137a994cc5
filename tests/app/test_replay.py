"""`stepscope replay`: its JSON, table and grid, what it refuses, and the file left as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from app.replay.command import run
from app.replay.options import Options
from app.replay.predict import combined
from app.replay.recorded import pick_run, read_recording
from app.replay.sweep import Grid, Targets
from app.replay.wording import change, value
from engine.errors import UserError
from engine.replay.recording import Settings
from telemetry.database import StoreError, open_reader
from telemetry.store import Store
from tests.commands import Command

MODELLED = ["--backend", "modelled", "--device", "h100-sxm", "--model", "llama-3.1-8b"]
LOAD = ["--workload", "azure-conv", "--rate", "12", "--requests", "60", "--max-batch", "16"]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="module")
def summaries(folder: Path, stepscope: Path) -> dict[str, Any]:
    """The same load under three schedulers, on a modelled device: exact, whatever this machine."""
    made = {}
    for scheduler in ("continuous", "chunked", "static"):
        command = ("run", "--scheduler", scheduler, "--db", f"{scheduler}.duckdb", "--json")
        ended = Command(stepscope, folder).run(*command, *MODELLED, *LOAD)
        assert ended.returncode == 0, ended.stderr
        made[scheduler] = json.loads(ended.stdout)
    return made


@pytest.fixture
def file(folder: Path, summaries: dict[str, Any]) -> Iterator[Path]:
    path = folder / "continuous.duckdb"
    before = path.read_bytes()
    yield path
    assert path.read_bytes() == before, "a replay changed the recorded file"


def asked(capsys: pytest.CaptureFixture[str], path: Path, **options: Any) -> dict[str, Any]:
    run(Options(file=path, as_json=True, **options))
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


FIGURES = (
    ("output_tokens_per_s", None, 0.02),
    ("makespan_s", None, 0.02),
    ("tpot_s", "p50", 0.02),
    ("itl_s", "max", 0.1),
    ("ttft_s", "p99", 0.1),
    ("padded_slot_fraction", None, 0.05),
)


@pytest.mark.parametrize("scheduler", ["chunked", "static"])
def test_predicted_is_what_then_happens(
    capsys: pytest.CaptureFixture[str], file: Path, summaries: dict[str, Any], scheduler: str
) -> None:
    predicted = asked(capsys, file, scheduler=scheduler, draws=2)["predicted"]
    for key, inner, within in FIGURES:
        truth = value(summaries[scheduler], key, inner)
        assert value(predicted, key, inner) == pytest.approx(truth, rel=within), (key, inner)
        low, high = (value(predicted[end], key, inner) or 0 for end in ("low", "high"))
        assert low <= (value(predicted, key, inner) or 0) <= high
    assert predicted["output_tokens"] == summaries[scheduler]["output_tokens"]
    assert predicted["requests"] == 60


def test_the_same_settings_give_the_recorded_run(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    found = asked(capsys, file, draws=1)
    assert found["recorded_settings"] == found["predicted"]["settings"]
    for key, inner, _ in FIGURES[:3]:
        truth = value(found["recorded"], key, inner)
        assert value(found["predicted"], key, inner) == pytest.approx(truth, rel=0.02)


def test_the_keys_are_those_of_run(
    capsys: pytest.CaptureFixture[str], file: Path, summaries: dict[str, Any]
) -> None:
    found = asked(capsys, file, draws=1)
    keys = set(summaries["continuous"]) - {"db", "run_id"}
    told = {key for key in keys if key in found["recorded"]}
    assert "itl_s" in told
    for side in (found["recorded"], *(found["predicted"][n] for n in ("low", "high"))):
        assert told <= set(side)
    assert told <= set(found["predicted"])
    assert found["predicted"]["outputs_sha256"] is None, "no text was made"
    assert found["run_id"] == summaries["continuous"]["run_id"]
    assert set(found["model"]["coefficients"]["phases"]) == {"prefill", "decode", "mixed"}
    assert found["model"]["residuals"]["phases"]["decode"]["steps"] > 100


def test_a_grid_finds_the_largest_budget_that_keeps_the_target(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    options = {"budgets": "128,4096", "batches": "16,32", "draws": 1, "sweep": True}
    free = asked(capsys, file, **options)
    assert len(free["rows"]) == 4
    assert all(row["meets_target"] for row in free["rows"])
    gaps = {
        row["predicted"]["settings"]["chunk_tokens"]: row["predicted"]["itl_s"]["max"]
        for row in free["rows"]
    }
    target_ms = (gaps[128] + gaps[4096]) / 2 * 1e3
    kept = asked(capsys, file, itl_slo=target_ms, **options)
    meeting = [r["predicted"]["settings"] for r in kept["rows"] if r["meets_target"]]
    assert {s["chunk_tokens"] for s in meeting} == {128}
    assert kept["best"]["predicted"]["settings"]["chunk_tokens"] == 128
    none = asked(capsys, file, itl_slo=0.001, **options)
    assert none["best"] is None


def test_points_at_which_a_request_never_fits_are_left_out_with_the_reason(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    found = asked(capsys, file, sweep=True, budgets="256", blocks="2,2000", draws=1)
    assert len(found["rows"]) == 1
    assert "2 KV blocks: prompt of" in found["skipped"][0]


def test_people_get_a_table_and_what_to_know_about_it(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    run(Options(file=file, scheduler="static", draws=2))
    said = capsys.readouterr().out
    for words in ("worst gap", "predicted: static, batch 16", "decode -", "another day's machine"):
        assert words in said
    run(Options(file=file, sweep=True, budgets="64,256", itl_slo=1000.0, draws=1))
    said = capsys.readouterr().out
    for words in ("chunked of 64", "┃", "Best: chunked of"):
        assert words in said


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scheduler": "dynamic"}, "unknown scheduler 'dynamic'.*continuous"),
        ({"run": "r-1"}, "no run r-1 in the file: use one of 2"),
        ({"max_batch": 0}, "max batch is 0: use 1 to 1024"),
        ({"kv_blocks": 1}, "KV blocks of 16, but the cache has 1"),
        ({"draws": 0}, "--draws is 0: use 1 to 100"),
        ({"budgets": "64"}, "--budgets belongs to a grid: add --sweep"),
        ({"sweep": True, "budgets": "64,x"}, "--budgets is '64,x': use whole numbers"),
        ({"sweep": True, "itl_slo": -1.0}, "--itl-slo is -1: use more than 0 ms"),
        ({"sweep": True, "batches": ",".join(map(str, range(1, 200)))}, "at most 200"),
    ],
)
def test_bad_input_is_one_line(file: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        run(Options(file=file, **options))
    assert len(str(caught.value).splitlines()) == 1


def test_the_command_ends_with_2_and_changes_nothing(stepscope: Path, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("not a database, but long enough to have a header")
    command = Command(stepscope, tmp_path)
    assert "does not exist" in command.refuses("replay", "nowhere.duckdb")
    assert "not a DuckDB file" in command.refuses("replay", "note.txt")


def test_files_without_runs_or_of_older_versions_say_so(tmp_path: Path) -> None:
    Store(tmp_path / "empty.duckdb").close()
    with pytest.raises(UserError, match="has no runs: record one"):
        run(Options(file=tmp_path / "empty.duckdb"))
    with duckdb.connect(tmp_path / "foreign.duckdb") as foreign:
        foreign.execute("CREATE TABLE t (x INTEGER)")
    with pytest.raises(StoreError, match="did not make"):
        run(Options(file=tmp_path / "foreign.duckdb"))


# --- the parts ---


def test_a_recording_reads_as_it_was_asked_for(file: Path, summaries: dict[str, Any]) -> None:
    with open_reader(file) as reader:
        recording = read_recording(reader, pick_run(reader, None))
    assert recording.settings == Settings(
        "continuous", 16, 256, recording.settings.kv_blocks, False
    )
    assert recording.one_copy
    assert len(recording.arrivals) == 60
    assert recording.left_out == 0
    assert (
        sum(a.output_tokens for a in recording.arrivals)
        == (summaries["continuous"]["output_tokens"])
    )
    assert len(recording.steps) == summaries["continuous"]["steps"]
    assert all(a.streams is None for a in recording.arrivals), "an open load came by the clock"


def test_the_grid_has_budgets_for_chunked_alone() -> None:
    base = Settings("continuous", 8, 256, 100, False)
    points = Grid(("static", "chunked"), (64, 128), (4, 8)).points(base)
    named = [(p.scheduler, p.chunk_tokens, p.max_batch) for p in points]
    assert named == [
        ("static", 256, 4),
        ("static", 256, 8),
        ("chunked", 64, 4),
        ("chunked", 128, 4),
        ("chunked", 64, 8),
        ("chunked", 128, 8),
    ]


def test_targets_are_on_p99_and_on_the_worst_gap() -> None:
    p = {"ttft_s": {"p99": 1.0}, "tpot_s": {"p99": None}, "itl_s": {"max": 0.2}}
    assert Targets().met(p)
    assert Targets(ttft_slo_s=1.0, itl_slo_s=0.2).met(p)
    assert not Targets(ttft_slo_s=0.9).met(p)
    assert not Targets(itl_slo_s=0.1).met(p)
    assert not Targets(tpot_slo_s=9.0).met(p), "what is unknown does not meet a target"


def test_summaries_combine_figure_by_figure() -> None:
    three = [{"a": n, "b": {"c": n / 2, "d": None if n == 2 else n}} for n in (3, 1, 2)]
    assert combined(three, min) == {"a": 1, "b": {"c": 0.5, "d": None}}
    assert (change(2.0, 3.0), change(2.0, 20.0), change(0.0, 1.0)) == ("+50%", "x 10.0", "–")
