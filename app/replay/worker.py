"""A replay in a process of its own: `python -m app.replay.worker`, so that no page waits for it.

A pickled Job comes on stdin; lines of JSON go to stdout: {"done", "total"} while it works, at the
end {"result"} or {"error"}.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.replay.predict import Fitted, Predictor
from app.replay.sweep import Grid, Targets, sweep
from engine.errors import UserError
from engine.replay.recording import Recording, Settings

_NICE = 5  # behind the engine that runs beside it
_MOST_STEPS = 60_000  # of all draws together, so that an answer takes seconds


@dataclass(frozen=True, slots=True)
class Job:
    """A question about a recording. told: what is shown beside the answer; grid: of a sweep."""

    recording: Recording
    told: dict[str, Any]
    settings: Settings
    grid: Grid | None = None
    targets: Targets = field(default_factory=Targets)


def answer(job: Job, tell: Callable[[int, int], None]) -> dict[str, Any]:
    """As `stepscope replay` has it. Raises UserError."""
    fitted = Fitted.of(job.recording)
    with Predictor(fitted) as predictor:
        if job.grid is None:
            draws = _draws(job.recording, 8)
            found = predictor.predict(job.settings, draws, lambda done: tell(done, draws))
            return {**job.told, "predicted": found, "model": fitted.to_json()}
        points = len(job.grid.points(job.settings))
        draws = _draws(job.recording, 3 * points) // points or 1
        rows = sweep(
            predictor, job.settings, job.grid, job.targets, draws, lambda done: tell(done, points)
        )
        return {**job.told, **rows, "model": fitted.to_json()}


def _draws(recording: Recording, wanted: int) -> int:
    """Fewer for a long recording, whose figures differ less from draw to draw."""
    return max(1, min(wanted, _MOST_STEPS // len(recording.steps)))


def main() -> None:
    os.nice(_NICE)
    job: Job = pickle.load(sys.stdin.buffer)
    try:
        _say({"result": answer(job, lambda done, total: _say({"done": done, "total": total}))})
    except UserError as error:
        _say({"error": str(error)})


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
