"""Lanes of the Interference page: who held which slot, and how fast it decoded there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from telemetry.gap_window import Window

BINS = 100
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Lanes:
    """speeds: slot, start_s, end_s, speed = tokens per second over those of the baseline, at most
    1 (NaN: no baseline); stretches of a lane with the same speed to a twentieth are one. lives:
    slot, request_id, start_s, end_s of streams, from their first token there to their last step."""

    speeds: pd.DataFrame
    lives: pd.DataFrame


def lanes(
    window: Window, gaps: pd.DataFrame, injected: list[int], start_ns: int, span_s: float
) -> Lanes:
    """Of the window's steps. gaps: theirs, with their baselines; injected: who is no stream."""
    steps, emitted = window.steps_shown(), window.emissions()
    emitted = emitted[~np.isin(emitted["request_id"].to_numpy(), injected)]
    steps["start_s"] = (steps["start_ns"] - start_ns) / 1e9
    steps["end_s"] = (steps["end_ns"] - start_ns) / 1e9
    place = np.searchsorted(steps["step"].to_numpy(), emitted["step"].to_numpy())
    groups = _groups(steps, max(1, int(span_s * 1e9 / BINS)))
    rows = _by_lane(emitted, groups, place)
    rows["speed"] = _speed(rows, gaps)
    return Lanes(_merged(rows), _lives(emitted, steps["end_s"].to_numpy()[place]))


def _groups(steps: pd.DataFrame, width_ns: int) -> pd.DataFrame:
    """A row for each step's group: its first_step, last_step, busy_s, start_s, end_s; by step.

    Steps with prompt tokens and those without never share one, so that the edges of a freeze are
    exact; else a group is a bin of time.
    """
    prompt, start_ns = steps["has_prompt"].to_numpy(), steps["start_ns"].to_numpy()
    islands = begins(prompt[1:] == prompt[:-1], len(steps))
    lengths = np.diff(np.append(islands, len(steps)))
    since = start_ns - np.repeat(start_ns[islands], lengths)
    bins, island = since // width_ns, np.repeat(np.arange(len(islands)), lengths)
    opens = begins((bins[1:] == bins[:-1]) & (island[1:] == island[:-1]), len(steps))
    group = np.repeat(np.arange(len(opens)), np.diff(np.append(opens, len(steps))))
    found = pd.DataFrame(
        {
            "first_step": of_islands(np.minimum, steps["step"], opens),
            "last_step": of_islands(np.maximum, steps["step"], opens),
            "busy_s": of_islands(np.add, steps["t_step_s"], opens),
            "start_s": of_islands(np.minimum, steps["start_s"], opens),
            "end_s": of_islands(np.maximum, steps["end_s"], opens),
        }
    )
    return found.take(group)


def _by_lane(emitted: pd.DataFrame, groups: pd.DataFrame, place: _Places) -> pd.DataFrame:
    """Tokens of each slot in each group of steps in which it emitted any; by slot and time."""
    first = groups["first_step"].to_numpy()[place]
    slot = emitted["slot"].to_numpy().astype(np.int64)
    order = np.lexsort((first, slot))
    slot, first = slot[order], first[order]
    opens = begins((slot[1:] == slot[:-1]) & (first[1:] == first[:-1]), len(order))
    found = groups.take(place[order][opens]).reset_index(drop=True)
    found["slot"] = slot[opens]
    found["tokens"] = of_islands(np.add, emitted["tokens"].to_numpy()[order], opens)
    return found


def _speed(rows: pd.DataFrame, gaps: pd.DataFrame) -> _Floats:
    baseline_s = gaps["baseline_s"].to_numpy(dtype=float)
    has = ~np.isnan(baseline_s)
    steps, place = np.unique(gaps["step"].to_numpy()[has], return_inverse=True)
    means = np.bincount(place, weights=baseline_s[has]) / np.bincount(place)
    sums = np.concatenate([[0.0], means.cumsum()])
    low = np.searchsorted(steps, rows["first_step"].to_numpy(), side="left")
    high = np.searchsorted(steps, rows["last_step"].to_numpy(), side="right")
    with np.errstate(invalid="ignore", divide="ignore"):
        baseline = (sums[high] - sums[low]) / (high - low)
        speed = rows["tokens"].to_numpy() * baseline / rows["busy_s"].to_numpy()
    twentieths: _Floats = np.round(np.minimum(speed, 1.0) * 20) / 20
    return twentieths


def _merged(rows: pd.DataFrame) -> pd.DataFrame:
    """Neighbours of one lane and speed, with nothing between them, as one."""
    slot, first, last, speed = (
        rows[name].to_numpy() for name in ("slot", "first_step", "last_step", "speed")
    )
    same = (slot[1:] == slot[:-1]) & (first[1:] == last[:-1] + 1)
    same &= (speed[1:] == speed[:-1]) | (np.isnan(speed[1:]) & np.isnan(speed[:-1]))
    opens = begins(same, len(rows))
    return pd.DataFrame(
        {
            "slot": slot[opens],
            "start_s": of_islands(np.minimum, rows["start_s"], opens),
            "end_s": of_islands(np.maximum, rows["end_s"], opens),
            "speed": speed[opens],
        }
    )


def _lives(emitted: pd.DataFrame, end_s: _Floats) -> pd.DataFrame:
    slot, request = emitted["slot"].to_numpy(), emitted["request_id"].to_numpy()
    order = np.lexsort((request, slot))
    slot, request, end_s = slot[order], request[order], end_s[order]
    opens = begins((slot[1:] == slot[:-1]) & (request[1:] == request[:-1]), len(order))
    found = {
        "slot": slot[opens],
        "request_id": request[opens],
        "start_s": of_islands(np.minimum, end_s, opens),
        "end_s": of_islands(np.maximum, end_s, opens),
    }
    by_time = np.lexsort((found["start_s"], found["slot"]))
    return pd.DataFrame({name: column[by_time] for name, column in found.items()})


def begins(same: npt.NDArray[np.bool_], rows: int) -> _Places:
    """Where islands of rows begin; same: whether a row belongs to the one before it."""
    return np.flatnonzero(np.concatenate([[True], ~same])) if rows else np.zeros(0, np.intp)


def of_islands(choose: np.ufunc, values: Iterable[Any], opens: _Places) -> npt.NDArray[Any]:
    """One value of each island: the least, the greatest, the sum, whether any or all."""
    column = np.asarray(values)
    return choose.reduceat(column, opens) if len(opens) else column[:0]
