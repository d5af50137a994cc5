"""A headless run that is stopped leaves no engine, and a file with what had run."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import duckdb
import psutil
import pytest

from telemetry.clock import sleep_s
from tests.process.waiting import ended, until

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_stopped_run_ends_its_engine_and_keeps_what_had_run(
    stepscope: Path, tiny_model: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    db = tmp_path / "a.duckdb"
    options = ("--db", db, "--model", tiny_model, "--threads", 1, "--requests", 100_000)
    process = subprocess.Popen(
        [stepscope, "run", "--workload", "steady", "--concurrency", "2", *map(str, options)],
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in its background has them ignore Ctrl-C, and all they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        (engine,) = until(lambda: psutil.Process(process.pid).children(), "the engine's process")
        written = (db, db.with_name("a.duckdb.wal"))
        until(lambda: sum(p.stat().st_size for p in written if p.exists()) > 300_000, "records")
        sleep_s(0.5)
        process.send_signal(number)
        _, said = process.communicate(timeout=15)
    finally:
        process.kill()  # one that goes on would take a core from every test that follows
    assert process.returncode == code
    assert said == ""
    until(lambda: ended(engine.pid), "the engine to end", 5)
    with duckdb.connect(db) as file:
        steps = [
            step for (step,) in file.execute("SELECT step FROM steps ORDER BY step").fetchall()
        ]
    assert steps == list(range(len(steps)))
    assert len(steps) > 100
