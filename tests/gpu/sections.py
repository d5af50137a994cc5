"""Runs a section in a process of its own, and keeps what it said when its time is up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from telemetry.clock import now_ns, seconds

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    deadline_s: float


@dataclass(slots=True)
class Result:
    """ended: done, deadline or failed; fault: the last line on stderr of one that failed."""

    name: str
    ended: str
    took_s: float
    rows: list[Row] = field(default_factory=list)
    fault: str | None = None


def run(section: Section, command: Sequence[str]) -> Result:
    """Rows are the lines of JSON that the command prints. It and its children end at the deadline,
    also one that hangs in the driver."""
    begun = now_ns()
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        late = threading.Event()
        timer = threading.Timer(section.deadline_s, _stop, (process, late))
        timer.start()
        try:
            rows = _rows(process)
            code = process.wait()
        finally:
            timer.cancel()
        ended = "deadline" if late.is_set() else "failed" if code else "done"
        fault = _last_line(errors, code) if ended == "failed" else None
    return Result(section.name, ended, seconds(now_ns() - begun), rows, fault)


def _rows(process: subprocess.Popen[str]) -> list[Row]:
    assert process.stdout is not None
    found: list[Row] = []
    for line in process.stdout:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:  # half a line: it was stopped while it wrote
            break
    return found


def _stop(process: subprocess.Popen[str], late: threading.Event) -> None:
    if process.poll() is None:
        late.set()
        os.killpg(process.pid, signal.SIGKILL)


def _last_line(errors: Any, code: int) -> str:
    errors.seek(0)
    said = errors.read().strip().splitlines()
    return said[-1] if said else f"exit code {code}, it said nothing"
