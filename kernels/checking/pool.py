"""Hands the items of a worker's list to a few worker processes, and outlives their crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

Row = dict[str, Any]
Choose = Callable[[list[Row]], list[int]]

ITEM_LIMIT_S = 120.0  # the longest item takes a few seconds; a GPU that hangs never answers
MOST_WORKERS = 8


class WorkerError(RuntimeError):
    """A worker did not come up; the last line that it said."""


@dataclass(slots=True)
class Found:
    """header: what the workers say of themselves. rows: one for each chosen item, in order."""

    header: Row
    rows: list[Row]


def command(kind: str) -> list[str]:
    """A worker of the registered kernels: "check" or "aot"."""
    return [sys.executable, "-m", "kernels.checking.worker", kind]


def run(worker: Sequence[str], choose: Choose, workers: int | None = None) -> Found:
    """Rows for the items that `choose` picks from the worker's list.

    A worker that ends on an item leaves its `blank` row with `failure`, and is replaced. Raises
    WorkerError, and whatever `choose` raises.
    """
    first = _Worker(worker)
    try:
        chosen = choose(first.header["items"])
    except BaseException:
        first.close()
        raise
    work = _Work(worker, first.header, SimpleQueue())
    for place in enumerate(chosen):
        work.queue.put(place)
    count = min(workers or _cores(), MOST_WORKERS, max(1, len(chosen)))
    threads = [
        threading.Thread(target=work.drain, args=(w,)) for w in [first, *[None] * (count - 1)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if work.faults:
        raise work.faults[0]
    return Found(first.header, [work.rows[place] for place in range(len(chosen))])


@dataclass(slots=True)
class _Work:
    worker: Sequence[str]
    header: Row
    queue: SimpleQueue[tuple[int, int]]
    rows: dict[int, Row] = field(default_factory=dict)
    faults: list[WorkerError] = field(default_factory=list)

    def drain(self, process: _Worker | None) -> None:
        """One thread: a worker, replaced when it ends, until the queue is empty."""
        try:
            while True:
                place, item = self.queue.get_nowait()
                process = process or _Worker(self.worker)
                self.rows[place], alive = process.ask(item)
                process = process if alive else None
        except Empty:
            pass
        except WorkerError as fault:
            self.faults.append(fault)
        finally:
            if process is not None:
                process.close()


class _Worker:
    """One process. header: its first line."""

    def __init__(self, worker: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            worker,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_environment(),
        )
        line = self._read()
        if not line:
            raise WorkerError(self._last_words())
        self.header: Row = json.loads(line)

    def ask(self, item: int) -> tuple[Row, bool]:
        """The row of an item, and whether the worker is still there."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{item}\n")
        self._process.stdin.flush()
        line = self._read()
        if line:
            row: Row = json.loads(line)
            return row, True
        failure = f"the process ended on it: {self._last_words()}"
        row = {**self.header["blank"], **self.header["items"][item], "failure": failure}
        return row, False

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._errors.close()

    def _read(self) -> str:
        assert self._process.stdout is not None
        timer = threading.Timer(ITEM_LIMIT_S, self._process.kill)
        timer.start()
        try:
            return self._process.stdout.readline()
        finally:
            timer.cancel()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        said = lines[-1] if lines else "it said nothing"
        self._errors.close()
        return f"signal {-code}, {said}" if code < 0 else f"exit code {code}, {said}"


def _environment() -> dict[str, str]:
    """One thread a worker, and this project's modules whatever the working directory is."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**os.environ, **single, "PYTHONPATH": path}


def _cores() -> int:
    return len(os.sched_getaffinity(0))
