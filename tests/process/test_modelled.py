"""A modelled engine as a process: nothing heavy in it, honest files, and runs that replace runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from app.wiring import Session
from engine.config import EngineConfig
from engine.errors import UserError
from engine.messages import Load
from tests.commands import Command
from tests.process.waiting import ended, until

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
H100 = ("--backend", "modelled", "--device", "h100-sxm", "--model", "llama-3.1-8b")
DB = ("--db", "m.duckdb")
MODELLED = EngineConfig(
    model="llama-3.1-8b", backend="modelled", device="h100-sxm", live=True, paced=True
)


@pytest.fixture
def command(stepscope: Path, tmp_path: Path) -> Command:
    return Command(stepscope, tmp_path)


def run(command: Command, *options: object) -> dict[str, Any]:
    ended = command.run("run", *H100, *DB, "--json", *options)
    assert (ended.returncode, ended.stderr) == (0, "")
    summary: dict[str, Any] = json.loads(ended.stdout)
    return summary


def test_the_engine_process_loads_neither_torch_nor_numba() -> None:
    code = (
        "import sys, app.engine_main, engine.build_modelled, engine.server, telemetry.recorder\n"
        "from engine.build_modelled import build_modelled_engine\n"
        "from engine.config import EngineConfig\n"
        "from engine.sink import NullSink\n"
        "config = EngineConfig('llama-3.1-8b', backend='modelled', device='h100-sxm')\n"
        "built = build_modelled_engine(config, NullSink(), lambda m: None, lambda *p: None)\n"
        "engine.server.EngineServer(built, None, lambda r: None).ready()\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    heavy = {"torch", "numba", "triton", "transformers", "streamlit", "duckdb", "gguf"}
    assert set(done.stdout.split()) & heavy == set()


def test_a_run_is_as_fast_as_it_can_and_says_modelled_everywhere(command: Command) -> None:
    """40 requests through 2 slots are 6 s on the device: sooner here, and the file knows why."""
    summary = run(command, "--workload", "steady", "--max-batch", 2)
    assert (summary["clock"], summary["backend"]) == ("modelled", "modelled")
    assert summary["device"] == "NVIDIA H100 SXM 80 GB"
    assert summary["completed"] == 40
    assert summary["tpot_s"]["p50"] == pytest.approx(5.4e-3, rel=0.05)
    with duckdb.connect(command.folder / "m.duckdb", read_only=True) as file:
        rows = file.execute("SELECT clock, backend, peaks_source, config FROM runs").fetchall()
        beaten = file.execute("SELECT count(*) FROM events WHERE kind = 'peak_beaten'").fetchall()
        gaps = file.execute("""
            SELECT max(t_start_ns - ended) FROM (
              SELECT t_start_ns, lag(t_start_ns + round(t_step_s * 1e9)) OVER (ORDER BY step)
                AS ended FROM steps)""").fetchall()
    ((clock, backend, source, config),) = rows
    assert (clock, backend, source) == ("modelled", "modelled", "datasheet")
    assert json.loads(config)["assumptions"]["bandwidth_fraction"] == 0.85
    assert beaten == [(0,)]
    assert gaps[0][0] <= 1, "while work waits nothing but steps takes time"


def test_schedulers_answer_alike_and_the_device_decides_the_time(command: Command) -> None:
    load = ("--workload", "skew", "--max-batch", 10)
    found = {s: run(command, *load, "--scheduler", s) for s in ("static", "continuous", "chunked")}
    assert len({summary["outputs_sha256"] for summary in found.values()}) == 1
    assert found["static"]["makespan_s"] > 2 * found["continuous"]["makespan_s"]
    b200 = run(command, *load, "--device", "b200")
    assert b200["outputs_sha256"] == found["continuous"]["outputs_sha256"]
    assert b200["makespan_s"] < found["continuous"]["makespan_s"]


def test_a_trace_runs_as_it_was_recorded(command: Command) -> None:
    summary = run(command, "--workload", "azure-conv", "--requests", 12, "--max-batch", 32)
    with duckdb.connect(command.folder / "m.duckdb", read_only=True) as file:
        (detail,) = file.execute("SELECT detail FROM events WHERE kind = 'load'").fetchall()[0]
        longest = file.execute("SELECT max(prompt_tokens), max(output_tokens) FROM requests")
        lengths = longest.fetchall()[0]
    assert json.loads(detail)["scale"] is None
    assert summary["completed"] == 12
    assert lengths[0] > 1000, "not an eighth of it"


REFUSED = [
    ((*H100[:4], "--model", "llama-3.1-8"), "did you mean 'llama-3.1-8b'"),
    (("--backend", "modelled", "--device", "h100sxm"), "did you mean 'h100-sxm'"),
    ((*H100[:4], "--model", "llama-3.1-70b"), "What would: 2 x NVIDIA H100 SXM 80 GB"),
    ((*H100, "--matmul-fraction", 1.2), "use more than 0 and at most 1"),
    ((*H100, "--bandwidth-fraction", -0.5), "use more than 0 and at most 1"),
    ((*H100, "--overhead-ms", -1), "overhead is -1 ms a step"),
    (("--device", "h100-sxm"), "give --backend modelled too"),
    ((*H100, "--tensor-parallel", 0), "tensor parallel is 0"),
    ((*H100, "--model", "no/such/config.json"), "no/such/config.json"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
@pytest.mark.parametrize("name", ["run", "demo"])
def test_bad_input_is_one_line_and_changes_no_file(
    command: Command, name: str, options: tuple[object, ...], why: str
) -> None:
    (command.folder / "m.duckdb").write_bytes(b"")
    assert why in command.refuses(name, *options, *DB)


def test_a_new_run_takes_the_place_of_a_cpu_run_and_back(tiny_model: Path, tmp_path: Path) -> None:
    db = tmp_path / "runs.duckdb"
    cpu = EngineConfig(str(tiny_model), dtype="fp32", max_batch=4, threads=1, live=True)
    session = Session(cpu, db, Load("steady", concurrency=2))
    try:
        first = _runs(session, "")
        session.new_run(MODELLED, Load("steady", concurrency=4))
        with pytest.raises(UserError, match="another run is being started"):
            session.new_run(MODELLED, None)
        second = _runs(session, first)
        assert ended_engine(first, session)
        ticket = session.submit_text("Why is the sky blue?", max_tokens=60)
        until(lambda: (a := session.answer(ticket)) and a.done, "a synthetic answer")
        answer = session.answer(ticket)
        assert answer is not None
        assert answer.text.strip()
        until(lambda: session.pace is not None, "how it keeps up")
        assert session.cpu_config == cpu
        session.new_run(session.cpu_config, None)
        _runs(session, second, steps=0)
        assert session.answer(ticket) is None, "of an engine that has ended"
    finally:
        session.close()
    with duckdb.connect(db, read_only=True) as file:
        runs = file.execute("SELECT run_id, clock FROM runs ORDER BY started_wall").fetchall()
        asked = "SELECT run_id, count(*) FROM steps GROUP BY ALL"
        steps = dict(file.execute(asked).fetchall())
        lost = file.execute(
            "SELECT count(*) FROM tokens ANTI JOIN requests USING (run_id, request_id)"
        ).fetchall()
    assert [clock for _, clock in runs] == ["real", "modelled", "real"]
    assert steps[runs[0][0]] > 5
    assert steps[runs[1][0]] > 5
    assert lost == [(0,)]


def _runs(session: Session, before: str, steps: int = 5) -> str:
    """The id of the run that has begun and stepped since `before`."""
    until(lambda: session.phase == "failed" or session.run_id not in (None, before), "a run", 120)
    assert session.phase == "ready", session.failure
    assert session.run_id is not None
    sql = "SELECT count(*) >= $steps FROM steps WHERE run_id = $run"
    values = {"steps": steps, "run": session.run_id}
    with session.store.reader() as reader:
        until(lambda: reader.value(sql, values), "its steps")
    return session.run_id


def ended_engine(run_id: str, session: Session) -> bool:
    """Only the newest engine is left of this process's children."""
    children = {p.pid for p in psutil.Process().children() if not ended(p.pid)}
    return session.run_id != run_id and session.engine_pid in children


def test_what_cannot_run_leaves_the_run_that_there_is(tmp_path: Path) -> None:
    session = Session(MODELLED, None, Load("steady", concurrency=2))
    try:
        first = _runs(session, "")
        with pytest.raises(UserError, match="does not fit"):
            session.new_run(EngineConfig("llama-3.1-70b", backend="modelled", device="l4"), None)
        assert (session.phase, session.run_id) == ("ready", first)
        session.new_run(MODELLED, Load("no such load"))
        until(lambda: session.phase == "failed", "the load to be refused")
        assert "no such load" in (session.failure or "")
        session.new_run(MODELLED, Load("steady", concurrency=2))
        assert _runs(session, first) != first, "a failed engine can be followed by another"
    finally:
        session.close()


def test_a_paused_modelled_engine_stands_still_and_single_steps() -> None:
    session = Session(MODELLED, None, Load("steady", concurrency=2))
    try:
        _runs(session, "")
        session.pause()
        until(lambda: bool(session.status and session.status.paused), "the pause")
        session.step_once()
        session.resume()
        until(lambda: bool(session.status and not session.status.paused), "to go on")
        with session.store.reader() as reader:
            sql = "SELECT count(*) FROM events WHERE kind IN ('pause', 'resume')"
            until(lambda: reader.value(sql, {}) >= 2, "both marks")
            worst = reader.value("SELECT max(itl_s) FROM itl", {})
        assert worst < 0.2, "a pause is no latency"
    finally:
        session.close()
