"""The GPU check without a GPU: it says so, outlives its sections, and its arithmetic is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.clock import NS_PER_S, now_ns, sleep_s
from tests.gpu.check import NO_GPU, SECTIONS
from tests.gpu.report import Report, lines
from tests.gpu.sections import Result, Section, run

CHECK = [sys.executable, "-m", "tests.gpu.check"]
ROW = 'print(\'{"name": "a"}\', flush=True)'


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_without_a_gpu_it_says_so_in_one_line() -> None:
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(CHECK, capture_output=True, text=True, env=hidden, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", NO_GPU + "\n")


def test_the_deadlines_leave_time_to_start_within_seven_minutes() -> None:
    assert sum(section.deadline_s for section in SECTIONS) <= 400


def test_a_section_that_ends_is_done() -> None:
    found = run(Section("a", 60), _python(ROW))
    assert (found.ended, found.rows, found.fault) == ("done", [{"name": "a"}], None)


def test_a_section_that_fails_keeps_its_rows_and_its_last_words() -> None:
    found = run(Section("a", 60), _python(f"{ROW}; raise ValueError('no such kernel')"))
    assert (found.ended, found.rows) == ("failed", [{"name": "a"}])
    assert found.fault == "ValueError: no such kernel"


def test_a_section_that_dies_in_silence_has_its_exit_code() -> None:
    found = run(Section("a", 60), _python("import os; os._exit(7)"))
    assert (found.ended, found.fault) == ("failed", "exit code 7, it said nothing")


def test_a_section_that_hangs_ends_at_its_deadline_with_its_rows_and_its_children(
    tmp_path: Path,
) -> None:
    """The child holds the pipe as well, so the section would not end without it."""
    child = tmp_path / "child"
    hang = f"import time, os; open({str(child)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    code = f"import subprocess, sys\n{ROW}\nsubprocess.run([sys.executable, '-c', {hang!r}])"
    found = run(Section("a", 5), _python(code))
    assert (found.ended, found.rows) == ("deadline", [{"name": "a"}])
    assert 5 <= found.took_s < 60
    pid = int(child.read_text())
    until = now_ns() + 30 * NS_PER_S
    while _runs(pid) and now_ns() < until:
        sleep_s(0.01)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- the report ---


def _ceilings() -> Result:
    found = {"copy": 4e12, "matmul": 800e12, "launch": 2e-6}
    rows = [{"name": name, "seconds": 1.0, "ceiling": most} for name, most in found.items()]
    return Result("ceilings", "done", 1.0, rows)


def test_a_time_is_held_against_the_least_that_the_device_allows() -> None:
    """40 MB at 4 TB/s are 10 us, 8 GFLOP at 800 TFLOP/s as well, and a launch is 2 us."""
    report = Report({})
    report.add(_ceilings())
    memory = {"name": "m", "seconds": 24e-6, "bytes": 40e6, "flops": 1e9}
    matmul = {"name": "f", "seconds": 12e-6, "bytes": 1e6, "flops": 8e9}
    unknown = {"name": "u", "seconds": None, "bytes": 1e6}
    report.add(Result("ops", "done", 1.0, [memory, matmul, unknown]))
    assert memory["modelled_s"] == pytest.approx(12e-6)
    assert memory["of_roof"] == pytest.approx(0.5)
    assert memory["gb_per_s"] == pytest.approx(40e6 / 24e-6 / 1e9)
    assert matmul["of_roof"] == pytest.approx(1.0)
    assert matmul["tflop_per_s"] == pytest.approx(8e9 / 12e-6 / 1e12)
    assert set(unknown) == {"name", "seconds", "bytes"}


def test_without_ceilings_there_are_rates_and_no_model() -> None:
    row = {"name": "m", "seconds": 1e-3, "bytes": 1e9}
    Report({}).add(Result("ops", "done", 1.0, [row]))
    assert row["gb_per_s"] == pytest.approx(1000)
    assert "of_roof" not in row


@pytest.mark.parametrize(
    ("ended", "rows", "passed"),
    [
        ("done", [{"op": "a", "passed": True}], True),
        ("done", [{"op": "a", "passed": False, "failure": "off by 3"}], False),
        ("deadline", [{"op": "a", "passed": True}], False),
        ("failed", [], False),
    ],
)
def test_it_passes_if_all_ran_and_all_are_right(
    ended: str, rows: list[dict[str, object]], passed: bool
) -> None:
    report, result = Report({}), Result("correctness", ended, 2.0, rows)
    report.add(result)
    assert report.passed is passed
    said = "\n".join(lines(report, result))
    assert said.startswith(f"correctness: {ended} after 2 s")
    assert ("off by 3" in said) is (rows != [] and not rows[0]["passed"])


def test_nothing_run_is_no_pass() -> None:
    assert Report({}).passed is False


# --- its own code, in the interpreter ---


@pytest.mark.process
def test_a_rehearsal_runs_every_section_and_measures_nothing(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    done = subprocess.run(
        [*CHECK, "--rehearse", "--json", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(path.read_text())
    assert [s["name"] for s in found["sections"]] == [section.name for section in SECTIONS]
    assert found["rehearsal"] is True
    assert found["ceilings"] == {}
    rows = {s["name"]: s["rows"] for s in found["sections"]}
    assert all(row["passed"] for row in rows["correctness"])
    timed = [row for name in ("attention", "ops", "engine") for row in rows[name]]
    assert {row["name"] for row in timed} == {
        "paged_decode", "paged_prefill", "rms_norm", "add_rms_norm", "silu_and_mul",
        "rope_and_cache", "quantised_linear int8", "quantised_linear int4", "router",
        "grouped_matmul", "sample", "decode step", "prefill step",
    }  # fmt: skip
    assert all(row["seconds"] is None and row["bytes"] > 0 for row in timed)
