"""Who is to blame for the gaps of a stretch: one culprit, several together, the host, or nobody."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from app.figures.data import known, records
from app.figures.gaps import is_bad
from telemetry.queries.interference import LABEL

MOST_NAMED = 3
UNSEEN = 1.25
"""Prompts that made no gap so many times its baseline are not named one by one."""
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Blame:
    """A row of the table: one culprit, several together, the host, or nobody who is known.

    steps: with prompt tokens, of at most `largest`. worst_s, inflation: of its longest gap. over:
    its gaps over twice the baseline. lost_s: seconds that all streams together lost. None: unknown.
    """

    kind: str
    request_id: int | None = None
    prompt_tokens: int | None = None
    steps: int | None = None
    largest: int | None = None
    streams: int | None = None
    worst_s: float | None = None
    inflation: float | None = None
    over: int = 0
    lost_s: float | None = None
    ttft_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    many: int = 1
    recomputes: bool = False
    injected: bool = False


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Columns of the gaps, by row: kinds of gaps with the same steps and time."""

    after: _Ints
    step: _Ints
    itl_s: _Floats
    lost_s: _Floats
    inflation: _Floats
    count: _Ints
    bad: npt.NDArray[np.bool_]
    prompt_flops: _Floats
    cause: npt.NDArray[Any]
    streams: npt.NDArray[Any]

    @classmethod
    def of(cls, gaps: pd.DataFrame) -> _Gaps:
        def floats(name: str) -> _Floats:
            return gaps[name].to_numpy(dtype=float)

        count = gaps["gaps"].to_numpy(dtype=np.int64)
        return cls(
            gaps["after_step"].to_numpy(),
            gaps["step"].to_numpy(),
            floats("itl_s"),
            floats("interference_s") * count,
            floats("inflation"),
            count,
            is_bad(gaps).to_numpy(),
            floats("prompt_flops"),
            gaps["cause"].to_numpy(dtype=object),
            gaps["streams"].to_numpy(),
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A row of the gaps, for each culprit in it, and its share of the loss there."""

    row: _Ints
    culprit: _Ints
    share: _Floats

    def of(self, chosen: npt.NDArray[np.bool_]) -> _Part:
        return _Part(self.row[chosen], self.culprit[chosen], self.share[chosen])


def blamed(gaps: pd.DataFrame, prompts: pd.DataFrame, requests: pd.DataFrame) -> tuple[Blame, ...]:
    """Culprits: what was injected, then the worst, the smaller ones together; then the host, and
    what is unexplained. A gap's loss is divided among its culprits by their prompt FLOPs in it.

    gaps, prompts, requests: rows of the queries of these names.
    """
    columns, facts = _Gaps.of(gaps), {int(r["request_id"]): r for r in records(requests)}
    parts = _parts(columns, prompts)
    shown = _named(columns, parts, facts)
    found = [
        _request(who, columns, parts.of(parts.culprit == who), prompts, facts.get(who, {}))
        for who in shown
    ]
    rest = parts.of(~np.isin(parts.culprit, shown))
    many = len(np.unique(rest.culprit))
    if many:
        found.append(replace(_sum("others", columns, rest.row, rest.share), many=many))
    host = np.flatnonzero(columns.cause == "host")
    if len(host):
        found.append(_sum("host", columns, host))
    return (*found, _sum("unexplained", columns, np.flatnonzero(columns.cause == "unexplained")))


def _parts(gaps: _Gaps, prompts: pd.DataFrame) -> _Part:
    """Each gap that prompts slowed beside each of its culprits, by row and then by culprit."""
    slowed = np.flatnonzero(gaps.cause == "prefill")
    steps = prompts["step"].to_numpy()
    low = np.searchsorted(steps, gaps.after[slowed], side="right")
    high = np.searchsorted(steps, gaps.step[slowed], side="right")
    if not int((high - low).sum()):
        return _Part(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    rows = np.repeat(slowed, high - low)
    mine = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
    ids, who = np.unique(prompts["request_id"].to_numpy()[mine], return_inverse=True)
    pairs, place = np.unique(rows * len(ids) + who, return_inverse=True)
    flops = np.bincount(place, weights=prompts["flops"].to_numpy(dtype=float)[mine])
    row = pairs // len(ids)
    return _Part(row, ids[pairs % len(ids)], flops / gaps.prompt_flops[row])


def _named(gaps: _Gaps, parts: _Part, facts: dict[int, dict[str, Any]]) -> list[int]:
    """The culprits that get a row of their own: what was injected first, then the worst.

    Ranked before anything else is worked out, since a window may hold a hundred prompts.
    """
    ids, who = np.unique(parts.culprit, return_inverse=True)
    worst, inflation = np.full(len(ids), -np.inf), np.full(len(ids), -np.inf)
    np.maximum.at(worst, who, gaps.itl_s[parts.row])
    np.fmax.at(inflation, who, gaps.inflation[parts.row])
    lost = np.bincount(
        who, weights=np.nan_to_num(parts.share * gaps.lost_s[parts.row]), minlength=len(ids)
    )
    injected = np.array([facts.get(int(i), {}).get("label") == LABEL for i in ids], dtype=bool)
    ranked = np.lexsort((ids, -lost, -worst, ~injected))
    seen = [n for n in ranked if injected[n] or inflation[n] >= UNSEEN]
    if not seen and len(ranked) and inflation[ranked[0]] == -np.inf:
        seen = [ranked[0]]  # nothing to hold it against, but it may be the one
    return [int(ids[n]) for n in seen[:MOST_NAMED]]


def _sum(kind: str, gaps: _Gaps, rows: _Ints, shares: _Floats | None = None) -> Blame:
    """Its longest gap, with the inflation of that one, and what all of them come to."""
    lost = gaps.lost_s[rows] if shares is None else gaps.lost_s[rows] * shares
    distinct = np.unique(rows)
    longest = int(distinct[gaps.itl_s[distinct].argmax()]) if len(distinct) else None
    return Blame(
        kind,
        streams=_streams(gaps, distinct) if kind in ("request", "others") else None,
        worst_s=None if longest is None else float(gaps.itl_s[longest]),
        inflation=None if longest is None else known(float(gaps.inflation[longest])),
        over=int(gaps.count[distinct][gaps.bad[distinct]].sum()),
        lost_s=None if np.isnan(lost).all() else float(np.nansum(lost)),
    )


def _streams(gaps: _Gaps, rows: _Ints) -> int:
    return len(set().union(*(set(ids) for ids in gaps.streams[rows])))


def _request(
    who: int, gaps: _Gaps, parts: _Part, prompts: pd.DataFrame, fact: dict[str, Any]
) -> Blame:
    """The row of one culprit, with what is known of its request."""
    mine = prompts[prompts["request_id"] == who]
    tokens = known(fact.get("prompt_tokens"))
    return replace(
        _sum("request", gaps, parts.row, parts.share),
        request_id=who,
        prompt_tokens=None if tokens is None else int(tokens),
        steps=len(np.unique(mine["step"])),
        largest=int(mine["tokens"].max()),
        start_s=float(mine["start_s"].min()),
        end_s=float(mine["end_s"].max()),
        recomputes=bool((mine["phase"] == "recompute").all()),
        injected=fact.get("label") == LABEL,
    )
