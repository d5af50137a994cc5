"""The protocol of a bench's sides, with real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.bench import machine
from app.bench.peers import peer_loop
from app.bench.side import Side
from app.errors import EngineFailedError
from engine.errors import UserError

pytestmark = pytest.mark.process
SCRIPT = """
import os, sys
from peer_loop import load_clock, serve

class UserError(ValueError):
    pass

def start(options):
    if options.get("refuse"):
        raise UserError("no such model: give another")
    print("a library says hello")
    os.write(1, b"and so does native code\\n")

    def add(a, b):
        return {"sum": a + b}

    def fail():
        raise RuntimeError("out of order")

    def leave():
        print("the last words", file=sys.stderr)
        os._exit(7)

    def now():
        return {"t_ns": load_clock().now_ns()}

    return {"name": options["name"]}, {"add": add, "fail": fail, "leave": leave, "now": now}

serve(start)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "peer.py"
    path.write_text(SCRIPT)
    return path


def open_side(script: Path, **options: object) -> Side:
    environment = {**os.environ, "PYTHONPATH": str(Path(peer_loop.__file__).parent)}
    return Side("peer", [sys.executable, str(script)], {"name": "x", **options}, environment)


@pytest.fixture
def side(script: Path) -> Iterator[Side]:
    opened = open_side(script)
    yield opened
    opened.close()


def test_a_side_answers_whatever_its_libraries_print(side: Side) -> None:
    assert side.ready() == {"name": "x"}
    assert side.ask("add", a=1, b=2) == {"sum": 3}
    assert side.ask("add", a=[1], b=[2]) == {"sum": [1, 2]}


def test_a_side_reads_the_clock_that_we_read(side: Side) -> None:
    from telemetry.clock import now_ns

    before = now_ns()
    then = side.ask("now")["t_ns"]
    assert before <= then <= now_ns()


def test_bad_input_is_told_as_bad_input(script: Path) -> None:
    side = open_side(script, refuse=True)
    try:
        with pytest.raises(UserError, match=r"^no such model: give another$"):
            side.ready()
    finally:
        side.close()


def test_a_failure_is_told_with_its_kind(side: Side) -> None:
    with pytest.raises(EngineFailedError, match="peer failed: RuntimeError: out of order"):
        side.ask("fail")


def test_a_side_that_ends_is_told_with_its_last_words(side: Side) -> None:
    with pytest.raises(EngineFailedError, match=r"exit code 7: .*the last words"):
        side.ask("leave")


def test_closing_leaves_no_process(side: Side) -> None:
    side.ready()
    pid = side.pid
    side.close()
    assert not psutil.pid_exists(pid)


def test_cpu_time_of_ended_children_is_ours(script: Path) -> None:
    """Else a peer's programs would pass for somebody else's load."""
    before = machine._family_s()
    side = open_side(script)
    side.ready()
    side.close()
    assert machine._family_s() > before


def test_the_watch_sees_what_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = machine.Watch()
    shares = iter([10.0, 10.0, 10.0, 13.0])
    monkeypatch.setattr(machine, "_foreign_s", lambda: next(shares))
    clock = iter([0, 2_000_000_000, 0, 2_000_000_000])
    monkeypatch.setattr(machine, "now_ns", lambda: next(clock))
    cores = psutil.cpu_count() or 1
    assert watch.during(lambda: "a") == ("a", 0.0)
    assert watch.during(lambda: "b") == ("b", pytest.approx(1.5 / cores))
    assert watch.worst == pytest.approx(1.5 / cores)
