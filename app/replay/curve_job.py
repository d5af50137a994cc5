"""The question behind a curve of token budgets: which recorded requests come again, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from app.replay.curve import Key
from app.replay.recorded import describe, read_recording
from app.replay.sweep import Grid
from app.replay.worker import Job
from engine.errors import UserError
from engine.replay.fit import LEAST_STEPS
from engine.replay.recording import Arrival, Recording
from telemetry.queries import curve as measured
from telemetry.queries import replay as queries
from telemetry.reader import Reader

BUDGETS = tuple(2**n for n in range(4, 14))
DRAWS = 3
_STEPS = 60_000  # of all replays together, so that the curve takes seconds
_LEAST_REQUESTS = 30
_LONGEST = 100_000


def curve_job(reader: Reader, key: Key) -> tuple[Job, Mapping[str, Any]]:
    """What a worker is asked, and what was measured of the same requests.

    Raises UserError where no replay is possible, with the reason.
    """
    with reader.snapshot():  # the engine goes on meanwhile
        return _job(reader, key)


def _job(reader: Reader, key: Key) -> tuple[Job, Mapping[str, Any]]:
    run_id = key[0]
    recording = read_recording(reader, run_id)
    _check(recording)
    rows = queries.requests(reader, run_id)
    points = Grid(("chunked", "continuous"), budgets(recording.settings.max_batch))
    count = _affordable(recording, len(points.points(recording.settings)))
    kept = _window(rows, count, _around(reader, key))
    part = replace(recording, arrivals=_again(recording.arrivals, rows, kept))
    asked = Job(part, describe(reader, part), recording.settings, points, draws=DRAWS, whole=True)
    ids = rows["request_id"]
    return asked, _facts(reader, recording, int(ids[kept.start]), int(ids[kept.stop - 1]), kept)


def budgets(max_batch: int) -> tuple[int, ...]:
    """Those that give every slot a token, up to what is much more than one step's decodes."""
    return tuple(b for b in BUDGETS if max_batch <= b <= max(1024, 8 * max_batch))


def _check(recording: Recording) -> None:
    steps = len(recording.steps)
    if steps < LEAST_STEPS:
        raise UserError(f"the run has {steps} steps: a step-time model needs {LEAST_STEPS} or more")
    if steps > _LONGEST:
        raise UserError(
            f"the run has {steps:,} steps: here up to {_LONGEST:,} are read, ask stepscope replay "
            "FILE --sweep for longer ones"
        )


def _affordable(recording: Recording, points: int) -> int:
    """How many requests can be replayed at every point."""
    share = _STEPS / (points * DRAWS * len(recording.steps))
    return max(_LEAST_REQUESTS, int(share * len(recording.arrivals)))


def _around(reader: Reader, key: Key) -> tuple[int, int] | int | None:
    """Instants between which a held stretch ran; else the request that was injected last."""
    run_id, first, last = key
    if first.isdecimal() and last.isdecimal():
        return measured.instants(reader, run_id, int(first), int(last))
    return measured.injected(reader, run_id)


def _window(rows: pd.DataFrame, count: int, around: tuple[int, int] | int | None) -> range:
    """Rows that come again: of the stretch, around what was injected, or the newest."""
    total = len(rows)
    end = total
    if isinstance(around, tuple):
        arrived = rows["arrived_ns"].between(*around).to_numpy().nonzero()[0]
        if not len(arrived):
            raise UserError("no request arrived in the steps that are held: hold a longer stretch")
        first, end = int(arrived[0]), int(arrived[-1]) + 1
        return range(max(first, end - count), end)
    if around is not None:
        place = int(rows["request_id"].searchsorted(around))
        end = min(total, place + max(1, count // 4) + 1)
    return range(max(0, end - count), end)


def _again(arrivals: tuple[Arrival, ...], rows: pd.DataFrame, kept: range) -> tuple[Arrival, ...]:
    """They come as they came: by the clock, or as places in their closed loop become free.

    A loop's first requests keep their instants, or all its places would fill at once.
    """
    start_ns, found, filled = int(rows["arrived_ns"][kept.start]), [], 0
    for place in kept:
        one = arrivals[place]
        if one.streams is not None:
            due_ns = max(one.due_ns, start_ns)
            if filled < one.streams:
                due_ns, filled = max(due_ns, int(rows["arrived_ns"][place])), filled + 1
            one = replace(one, due_ns=due_ns)
        found.append(one)
    return tuple(found)


def _facts(
    reader: Reader, recording: Recording, first: int, last: int, kept: range
) -> dict[str, Any]:
    return {
        "measured": measured.measured(reader, recording.run_id, first, last),
        "requests": len(kept),
        "goals": {"itl_slo_s": recording.tpot_slo_s, "ttft_slo_s": recording.ttft_slo_s},
    }
