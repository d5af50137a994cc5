"""Cells of neighbouring steps become one row, in one piece or in several."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pytest

from telemetry.queries.islands import BREATH_NS, merged

STEP_NS = 10_000_000
STRETCHES = ((0, 50), (50, 51), (51, 140), (140, 200))
NAMES = ["lane", "request_id", "phase", "first_step", "last_step", "tokens", "start_ns", "end_ns"]


def cell(lane: int, request: int, phase: str, step: int, tokens: int = 1) -> list[Any]:
    start_ns = step * STEP_NS
    return [lane, request, phase, step, step, tokens, start_ns, start_ns + STEP_NS]


def frame(rows: list[list[Any]]) -> pd.DataFrame:
    made = pd.DataFrame(rows, columns=NAMES)
    return made.astype({"phase": pd.CategoricalDtype(["prefill", "decode", "recompute"])})


def told(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows[NAMES[:6]].itertuples(index=False, name=None)]


def test_rows_end_where_request_phase_or_step_does() -> None:
    rows = [cell(0, 7, "prefill", 0, 40), cell(0, 7, "decode", 1), cell(0, 7, "decode", 2)]
    rows += [cell(0, 7, "decode", 4), cell(0, 8, "decode", 5), cell(1, 9, "decode", 5)]
    assert told(merged(frame(rows))) == [
        (0, 7, "prefill", 0, 0, 40),
        (0, 7, "decode", 1, 2, 2),
        (0, 7, "decode", 4, 4, 1),
        (0, 8, "decode", 5, 5, 1),
        (1, 9, "decode", 5, 5, 1),
    ]


@pytest.mark.parametrize(("breath_ns", "rows"), [(BREATH_NS, 1), (BREATH_NS + 1, 2)])
def test_idle_time_parts_them(breath_ns: int, rows: int) -> None:
    late = cell(0, 1, "decode", 1)
    late[6:] = [STEP_NS + breath_ns, 2 * STEP_NS + breath_ns]
    assert len(merged(frame([cell(0, 1, "decode", 0), late]))) == rows


def test_a_phase_may_stay_apart() -> None:
    rows = [cell(0, 1, phase, step) for step, phase in enumerate(["prefill"] * 3 + ["decode"] * 3)]
    assert len(merged(frame(rows))) == 2
    assert told(merged(frame(rows), alone=("prefill",)))[-2:] == [
        (0, 1, "prefill", 2, 2, 1),
        (0, 1, "decode", 3, 5, 3),
    ]


def test_pieces_come_to_the_whole() -> None:
    rng = random.Random(3)
    rows = [
        cell(lane, rng.randint(1, 2), rng.choice(["decode", "prefill"]), step, rng.randint(1, 9))
        for step in range(200)
        for lane in range(3)
        if rng.random() < 0.9
    ]
    whole = merged(frame(rng.sample(rows, len(rows))))  # in no order
    pieces = [merged(frame([r for r in rows if low <= r[3] < high])) for low, high in STRETCHES]
    assert told(merged(pd.concat(pieces))) == told(whole)
    assert int(whole["tokens"].sum()) == sum(row[5] for row in rows)


def test_nothing_stays_nothing() -> None:
    assert merged(frame([])).empty
