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
from dataclasses import dataclass, field, replace
from typing import Any

from app.replay.predict import DRAWS, Fitted, Predictor
from app.replay.sweep import Grid, Targets, sweep
from engine.errors import UserError
from engine.replay.recording import Recording, Settings

_NICE = 5  # behind the engine that runs beside it
_MOST_STEPS = 60_000  # of all replays together, so that an answer takes seconds
_LEAST_REQUESTS = 50


@dataclass(frozen=True, slots=True)
class Job:
    """A question about a recording. told: what is shown beside the answer; grid: of a sweep.

    draws: replays of each of its points. whole: who asks has chosen how many requests come again.
    """

    recording: Recording
    told: dict[str, Any]
    settings: Settings
    grid: Grid | None = None
    targets: Targets = field(default_factory=Targets)
    draws: int = 1
    whole: bool = False


def answer(job: Job, tell: Callable[[int, int], None]) -> dict[str, Any]:
    """As `stepscope replay` has it, but of a long run less. Raises UserError."""
    fitted = Fitted.of(job.recording)
    found = _predicted(job, fitted, tell) if job.grid is None else _swept(job, fitted, tell)
    return {**job.told, **found, "model": fitted.to_json()}


def _predicted(job: Job, fitted: Fitted, tell: Callable[[int, int], None]) -> dict[str, Any]:
    draws = max(1, min(DRAWS, _MOST_STEPS // len(job.recording.steps)))
    with Predictor(fitted) as predictor:
        found = predictor.predict(job.settings, draws, lambda done: tell(done, draws))
    return {"predicted": found}


def _swept(job: Job, fitted: Fitted, tell: Callable[[int, int], None]) -> dict[str, Any]:
    """All steps are fitted; of a long run the last requests are replayed, and that is told."""
    grid, arrivals = job.grid or Grid(), job.recording.arrivals
    points = len(grid.points(job.settings))
    share = _MOST_STEPS / (points * job.draws * len(job.recording.steps))
    most = len(arrivals) if job.whole else max(_LEAST_REQUESTS, int(share * len(arrivals)))
    kept = arrivals[-most:]
    part = replace(fitted, recording=replace(job.recording, arrivals=kept))
    with Predictor(part) as predictor:
        found = sweep(
            predictor, job.settings, grid, job.targets, job.draws, lambda done: tell(done, points)
        )
    if len(kept) < len(arrivals):
        found["skipped"].insert(0, f"Replayed are the last {len(kept):,} requests of a long run.")
    return found


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
