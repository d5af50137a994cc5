"""One side of the Interference page: the gaps of a stretch of steps, and whom to blame for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from app.figures.data import known, records
from app.figures.gaps import is_bad
from telemetry.queries import interference as queries
from telemetry.reader import Reader


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps first to last of a run, drawn from start_ns (monotonic) on over span_s seconds."""

    run_id: str
    first: int
    last: int
    start_ns: int
    span_s: float


@dataclass(frozen=True, slots=True)
class Blame:
    """A row of the table: one culprit, several together, the host, or nobody who is known.

    steps: with prompt tokens, of at most `largest`. worst_s, inflation: of its longest gap. over:
    its gaps over twice the baseline.
    lost_s: seconds that all streams together lost. None: unknown.
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
class Found:
    """What was found in a stretch."""

    stretch: Stretch
    gaps: pd.DataFrame
    prompts: pd.DataFrame
    blames: tuple[Blame, ...]
    scheduler: str
    chunk_tokens: int | None
    reported: dict[str, bool]

    @property
    def total(self) -> int:
        return int(self.gaps["gaps"].sum())

    @property
    def has_baseline(self) -> bool:
        """Whether any gap has one: else how many are bad is unknown."""
        return bool(self.gaps["baseline_s"].notna().any())

    @property
    def over(self) -> int:
        """Gaps over twice their baseline, whatever caused them."""
        return int(self.gaps.loc[is_bad(self.gaps), "gaps"].sum())

    @property
    def focus(self) -> Blame | None:
        """What was injected, if it slowed anybody, else the request behind the longest gap."""
        return next((b for b in self.blames if b.kind == "request"), None)

    @property
    def worst(self) -> dict[str, Any] | None:
        """The longest gap of all: x_s, itl_s, inflation, cause, step."""
        if self.gaps.empty:
            return None
        return records(self.gaps.loc[[self.gaps["itl_s"].idxmax()]])[0]

    def percentile(self, share: float) -> float | None:
        """The gap that so large a share of all gaps does not exceed, s."""
        if self.gaps.empty:
            return None
        ordered = self.gaps.sort_values("itl_s")
        place = int(np.searchsorted(ordered["gaps"].cumsum(), share * self.total))
        return float(ordered["itl_s"].iloc[min(place, len(ordered) - 1)])


def found(reader: Reader, stretch: Stretch) -> Found:
    """Everything the page says about a stretch, but for its lanes."""
    where = stretch.run_id, stretch.first, stretch.last
    gaps = queries.gaps(reader, *where)
    gaps["x_s"] = (gaps["t_ns"] - stretch.start_ns) / 1e9
    prompts = queries.prompts(reader, *where, stretch.start_ns)
    ids = [int(i) for i in prompts["request_id"].unique()]
    blames = blamed(gaps, prompts, queries.requests(reader, stretch.run_id, ids))
    set_to = queries.settings(reader, stretch.run_id, _telling_step(stretch, blames, prompts)) or {}
    return Found(
        stretch,
        gaps,
        prompts,
        blames,
        str(set_to.get("scheduler", "")),
        set_to.get("chunk_tokens"),
        queries.reported(reader, stretch.run_id),
    )


def _telling_step(stretch: Stretch, blames: tuple[Blame, ...], prompts: pd.DataFrame) -> int:
    """The step whose settings name a side: the last one with tokens of its first culprit."""
    focus = next((b.request_id for b in blames if b.kind == "request"), None)
    steps = prompts.loc[prompts["request_id"] == focus, "step"]
    return int(steps.max()) if len(steps) else stretch.last


MOST_NAMED = 3
UNSEEN = 1.25
"""Prompts that made no gap so many times its baseline are not named one by one."""


def blamed(gaps: pd.DataFrame, prompts: pd.DataFrame, requests: pd.DataFrame) -> tuple[Blame, ...]:
    """Culprits: what was injected, then the worst, the smaller ones together; then the host, and
    what is unexplained. A gap's loss is divided among its culprits by their prompt FLOPs in it.

    gaps, prompts, requests: rows of the queries of these names.
    """
    rows = _shares(gaps, prompts)
    facts = {int(r["request_id"]): r for r in records(requests)}
    shown = _named(rows, facts)
    requests_ = [_request(who, rows[rows["culprit_id"] == who], prompts, facts) for who in shown]
    rest = rows[~rows["culprit_id"].isin(shown)]
    many = int(rest["culprit_id"].nunique())
    together = [_sum("others", rest, many=many)] if many else []
    host = gaps[gaps["cause"] == "host"]
    hosts = [_sum("host", host)] if len(host) else []
    nobody = _sum("unexplained", gaps[gaps["cause"] == "unexplained"])
    return (*requests_, *together, *hosts, nobody)


def _named(rows: pd.DataFrame, facts: dict[int, dict[str, Any]]) -> list[int]:
    """The culprits that get a row of their own: what was injected first, then the worst.

    Ranked before anything else is worked out, since a window may hold a hundred prompts.
    """
    lost = rows["share"] * rows["interference_s"] * rows["gaps"]
    ranked = (
        rows.assign(lost=lost)
        .groupby("culprit_id")
        .agg(worst=("itl_s", "max"), inflation=("inflation", "max"), lost=("lost", "sum"))
    )
    ranked["injected"] = [facts.get(int(i), {}).get("label") == queries.LABEL for i in ranked.index]
    ranked = ranked.sort_values(
        ["injected", "worst", "lost"], ascending=False, kind="stable", na_position="last"
    )
    seen = ranked[ranked["injected"] | (ranked["inflation"] >= UNSEEN)]
    if seen.empty and len(ranked) and pd.isna(ranked["inflation"].iloc[0]):
        seen = ranked[:1]  # nothing to hold it against, but it may be the one
    return [int(who) for who in seen.index[:MOST_NAMED]]


def _shares(gaps: pd.DataFrame, prompts: pd.DataFrame) -> pd.DataFrame:
    """A row for each gap and each of its culprits (culprit_id), with its share of the loss."""
    slowed = gaps[gaps["cause"] == "prefill"].reset_index(drop=True)
    steps = prompts["step"].to_numpy()
    low = np.searchsorted(steps, slowed["after_step"], side="right")
    high = np.searchsorted(steps, slowed["step"], side="right")
    pieces = [np.arange(a, b) for a, b in zip(low, high, strict=True)]
    if not pieces:
        return slowed.assign(culprit_id=pd.Series(dtype="int64"), share=pd.Series(dtype="float64"))
    row = np.repeat(slowed.index.to_numpy(), high - low)
    mine = prompts.iloc[np.concatenate(pieces)]
    flops = pd.Series(mine["flops"].to_numpy(), name="flops")
    parts = flops.groupby([row, mine["request_id"].to_numpy()]).sum()
    parts.index.names = ["row", "culprit_id"]
    joined = parts.reset_index().merge(slowed, left_on="row", right_index=True)
    return joined.assign(share=joined["flops"] / joined["prompt_flops"])


def _sum(kind: str, rows: pd.DataFrame, request_id: int | None = None, many: int = 1) -> Blame:
    """Its longest gap, with the inflation of that one, and what all of them come to."""
    lost = (rows.get("share", 1.0) * rows["interference_s"] * rows["gaps"]).sum(min_count=1)
    distinct = rows.drop_duplicates(["after_step", "step", "t_ns", "itl_s"])
    longest = records(rows.nlargest(1, "itl_s")[["itl_s", "inflation"]])
    return Blame(
        kind,
        request_id,
        streams=_streams(distinct["streams"]) if kind in ("request", "others") else None,
        worst_s=known(longest[0]["itl_s"]) if longest else None,
        inflation=known(longest[0]["inflation"]) if longest else None,
        over=int(distinct.loc[is_bad(distinct), "gaps"].sum()),
        lost_s=known(lost),
        many=many,
    )


def _streams(lists: Iterable[Any]) -> int:
    return len(set().union(*(set(ids) for ids in lists)))


def with_ttft(reader: Reader, side: Found) -> Found:
    """Adds the first request's own TTFT, which is what chunking costs it."""
    first = side.blames[0]
    if first.request_id is None:
        return side
    ttft_s = known(queries.ttft(reader, side.stretch.run_id, first.request_id))
    return replace(side, blames=(replace(first, ttft_s=ttft_s), *side.blames[1:]))


def _request(
    request_id: int,
    rows: pd.DataFrame,
    prompts: pd.DataFrame,
    facts: dict[int, dict[str, Any]],
) -> Blame:
    """The row of one culprit, with what is known of its request."""
    mine, fact = prompts[prompts["request_id"] == request_id], facts.get(request_id, {})
    tokens = known(fact.get("prompt_tokens"))
    return replace(
        _sum("request", rows, request_id),
        prompt_tokens=None if tokens is None else int(tokens),
        steps=int(mine["step"].nunique()),
        largest=int(mine["tokens"].max()),
        start_s=float(mine["start_s"].min()),
        end_s=float(mine["end_s"].max()),
        recomputes=bool((mine["phase"] == "recompute").all()),
        injected=fact.get("label") == queries.LABEL,
    )


def speeds(reader: Reader, found_: Found) -> pd.DataFrame:
    """Lanes: slot, start_s, end_s, speed = tokens per second over those of the baseline, at most 1.

    Stretches of a lane with the same speed to a twentieth are one; NULL where no baseline is known.
    """
    s = found_.stretch
    rows = queries.lanes(reader, s.run_id, s.first, s.last, s.start_ns, s.span_s)
    rows["speed"] = _speed(rows, found_.gaps)
    return _merged(rows)


def _speed(rows: pd.DataFrame, gaps: pd.DataFrame) -> pd.Series[Any]:
    by_step = gaps.dropna(subset="baseline_s").groupby("step")["baseline_s"].mean()
    steps, sums = by_step.index.to_numpy(), np.concatenate([[0.0], by_step.cumsum().to_numpy()])
    low = np.searchsorted(steps, rows["first_step"], side="left")
    high = np.searchsorted(steps, rows["last_step"], side="right")
    with np.errstate(invalid="ignore", divide="ignore"):
        baseline = (sums[high] - sums[low]) / (high - low)
    speed: pd.Series[Any] = (rows["tokens"] * baseline / rows["busy_s"]).clip(upper=1.0)
    return (speed * 20).round() / 20


def _merged(rows: pd.DataFrame) -> pd.DataFrame:
    """Neighbours of one lane and speed, with nothing between them, as one."""
    before = rows.shift(1)
    same = (rows["slot"] == before["slot"]) & (rows["first_step"] == before["last_step"] + 1)
    same &= (rows["speed"] == before["speed"]) | (rows["speed"].isna() & before["speed"].isna())
    island = (~same).cumsum()
    return rows.groupby(island).agg(
        slot=("slot", "first"),
        start_s=("start_s", "min"),
        end_s=("end_s", "max"),
        speed=("speed", "first"),
    )


def bands(found_: Found) -> pd.DataFrame:
    """Steps with prompt tokens: start_s, end_s, kind; neighbours of one kind are one band.

    kind: "focus" where the request of the headline has a part, "recompute" where all was computed
    before, else "others".
    """
    focus = found_.focus.request_id if found_.focus else None
    rows = found_.prompts.assign(
        mine=found_.prompts["request_id"] == focus,
        again=found_.prompts["phase"] == "recompute",
    )
    steps = (
        rows.groupby("step")
        .agg(
            start_s=("start_s", "min"),
            end_s=("end_s", "max"),
            mine=("mine", "any"),
            again=("again", "all"),
        )
        .reset_index()
    )
    steps["kind"] = np.select([steps["mine"], steps["again"]], ["focus", "recompute"], "others")
    before = steps.shift(1)
    same = (steps["kind"] == before["kind"]) & (steps["step"] == before["step"] + 1)
    return steps.groupby((~same).cumsum()).agg(
        start_s=("start_s", "min"), end_s=("end_s", "max"), kind=("kind", "first")
    )
