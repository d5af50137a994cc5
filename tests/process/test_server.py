"""However the server ends, no engine is left and the recording opens."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.clock import NS_PER_S, now_ns
from tests.commands import free_port
from tests.process.waiting import ended, until

pytestmark = pytest.mark.process
BUSY = ("--workload", "steady", "--concurrency", "2")
IDLE = ("--workload", "steady", "--rate", "0.00001")


@dataclass(slots=True)
class Server:
    """`stepscope demo` as a person starts it."""

    process: subprocess.Popen[bytes]
    port: int
    db: Path
    log: Path

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def health(self) -> dict[str, Any]:
        """Empty while nothing answers."""
        if self.process.poll() is not None:
            pytest.fail(f"the server ended: {self.log.read_text()}")
        try:
            facts: dict[str, Any] = json.loads(self.get("/stepscope/health")[1])
        except OSError:
            return {}
        return facts

    def ready(self) -> dict[str, Any]:
        """What it says once the engine serves."""
        until(lambda: self.health().get("phase") == "ready", "the engine to be ready", 120)
        return self.health()

    def steps(self) -> int:
        return int(self.health().get("steps", 0))


@pytest.fixture
def start(stepscope: Path, tiny_model: Path, tmp_path: Path) -> Iterator[Any]:
    """Starts servers of a tiny model; whatever is left of them is killed at the end."""
    servers: list[Server] = []

    def start_server(*load: str) -> Server:
        port, db, log = free_port(), tmp_path / "live.duckdb", tmp_path / "server.log"
        options = ("--db", db, "--port", port, "--threads", 1, "--max-batch", 4)
        with log.open("wb") as out:
            process = subprocess.Popen(
                [stepscope, "demo", "--model", tiny_model, *map(str, options), *load],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        servers.append(Server(process, port, db, log))
        return servers[-1]

    yield start_server
    for server in servers:
        server.process.kill()
        server.process.wait()


def _recorded(db: Path, killed_ns: int) -> None:
    """The file opens, its steps are whole, and at most the last second is missing."""
    with duckdb.connect(db) as file:
        rows = file.execute("SELECT step, t_start_ns FROM steps ORDER BY step").fetchall()
        orphans = file.execute(
            "SELECT count(*) FROM sequence_steps ANTI JOIN steps USING (step)"
        ).fetchall()
    assert [step for step, _ in rows] == list(range(len(rows)))
    assert orphans == [(0,)]
    assert killed_ns - rows[-1][1] < NS_PER_S


def test_a_killed_server_leaves_no_engine_and_all_but_the_last_second(start: Any) -> None:
    server = start(*BUSY)
    engine = server.ready()["engine_pid"]
    until(lambda: server.steps() > 200, "200 steps")
    killed_ns = now_ns()
    os.kill(server.process.pid, signal.SIGKILL)
    until(lambda: ended(engine), "the engine to end by itself", 5)
    server.process.wait(5)
    _recorded(server.db, killed_ns)


def test_an_idle_engine_ends_with_a_killed_server_too(start: Any) -> None:
    server = start(*IDLE)
    facts = server.ready()
    assert facts["steps"] == 0
    os.kill(server.process.pid, signal.SIGKILL)
    until(lambda: ended(facts["engine_pid"]), "the idle engine to end by itself", 5)


def test_an_engine_that_is_still_starting_ends_with_a_killed_server_too(start: Any) -> None:
    server = start(*IDLE)
    engine = until(lambda: server.health().get("engine_pid"), "the engine's process", 120)
    os.kill(server.process.pid, signal.SIGKILL)
    until(lambda: ended(engine), "the starting engine to end by itself", 5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_ends_in_order(start: Any, number: signal.Signals) -> None:
    server = start(*BUSY)
    engine = server.ready()["engine_pid"]
    until(lambda: server.steps() > 50, "50 steps")
    watched = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    watched.request("GET", "/stepscope/view/live")  # an open page does not hold it up
    told_ns = now_ns()
    server.process.send_signal(number)
    server.process.wait(15)
    watched.close()
    assert ended(engine)
    assert "Traceback" not in server.log.read_text()
    assert not server.db.with_name("live.duckdb.wal").exists(), "the database was not closed"
    _recorded(server.db, told_ns)
    with duckdb.connect(server.db) as file:
        missing = file.execute(
            "SELECT count(*) FROM tokens ANTI JOIN steps USING (step)"
        ).fetchall()
    assert missing == [(0,)]


def test_a_server_outlives_its_engine_and_says_what_happened(start: Any) -> None:
    server = start(*BUSY)
    os.kill(server.ready()["engine_pid"], signal.SIGKILL)
    until(lambda: server.health()["phase"] == "failed", "the failure to be noticed", 10)
    failure = server.health()["failure"]
    assert failure == "the engine ended by itself (exit code -9); restart Stepscope"
    assert server.get("/")[0] == 200
    server.process.terminate()
    server.process.wait(15)
