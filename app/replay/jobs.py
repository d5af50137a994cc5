"""Replays that pages asked for: one at a time, each in a process of its own, answers kept."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.replay.worker import Job


@dataclass(slots=True)
class Work:
    """One question on its way to an answer; read from any thread."""

    done: int = 0
    total: int = 0
    result: dict[str, Any] | None = None
    error: str | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self.result is None and self.error is None

    def heard(self, line: bytes) -> None:
        """A line of the worker."""
        said = json.loads(line)
        self.done, self.total = said.get("done", self.done), said.get("total", self.total)
        self.result, self.error = said.get("result"), said.get("error")


class Jobs:
    """The newest question replaces the one before it, which is given up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Work | None = None

    def start(self, job: Job) -> Work:
        """Ask; the answer comes into the Work that is returned."""
        process = subprocess.Popen(
            [sys.executable, "-m", "app.replay.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        work = Work(process=process)
        with self._lock:
            if self._current is not None and self._current.process is not None:
                self._current.process.kill()
            self._current = work
        question = pickle.dumps(job)
        threading.Thread(target=_follow, args=(work, process, question), daemon=True).start()
        return work


def _follow(work: Work, process: subprocess.Popen[bytes], question: bytes) -> None:
    with contextlib.suppress(OSError):  # it ended early, and says why below
        _talk(work, process, question)
    said = (process.stderr.read() if process.stderr else b"").decode(errors="replace").split("\n")
    process.wait()
    if work.running:
        why = next((line for line in reversed(said) if line.strip()), None)
        work.error = why or "the replay was given up for a newer question"


def _talk(work: Work, process: subprocess.Popen[bytes], question: bytes) -> None:
    if process.stdin is not None:
        process.stdin.write(question)
        process.stdin.close()
    for line in process.stdout or ():
        work.heard(line)
