"""One side of the Interference page: the gaps of a stretch of steps, and whom to blame for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from app.figures.data import known, records
from app.figures.gaps import is_bad
from app.panels.interference_blame import Blame, blamed
from app.panels.interference_lanes import begins, of_islands
from telemetry.gap_window import Window, read_window
from telemetry.gap_window import gaps as judge
from telemetry.gap_window import prompts as prompts_of
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


@dataclass(frozen=True)
class Found:
    """What was found in a stretch."""

    stretch: Stretch
    window: Window
    gaps: pd.DataFrame
    prompts: pd.DataFrame
    blames: tuple[Blame, ...]
    scheduler: str
    chunk_tokens: int | None
    reported: dict[str, bool]

    @cached_property
    def total(self) -> int:
        return int(self.gaps["gaps"].sum())

    @cached_property
    def has_baseline(self) -> bool:
        """Whether any gap has one: else how many are bad is unknown."""
        return bool(self.gaps["baseline_s"].notna().any())

    @cached_property
    def over(self) -> int:
        """Gaps over twice their baseline, whatever caused them."""
        return int(self.gaps.loc[is_bad(self.gaps), "gaps"].sum())

    @property
    def focus(self) -> Blame | None:
        """What was injected, if it slowed anybody, else the request behind the longest gap."""
        return next((b for b in self.blames if b.kind == "request"), None)

    @cached_property
    def worst(self) -> dict[str, Any] | None:
        """The longest gap of all: x_s, itl_s, inflation, cause, step."""
        if self.gaps.empty:
            return None
        return records(self.gaps.loc[[self.gaps["itl_s"].idxmax()]])[0]

    def percentile(self, share: float) -> float | None:
        """The gap that so large a share of all gaps does not exceed, s."""
        if self.gaps.empty:
            return None
        times, many = self.gaps["itl_s"].to_numpy(), self.gaps["gaps"].to_numpy()
        order = np.argsort(times)
        place = int(np.searchsorted(many[order].cumsum(), share * self.total))
        return float(times[order[min(place, len(order) - 1)]])


def found(reader: Reader, stretch: Stretch) -> Found:
    """Everything the page says about a stretch, but for its lanes."""
    where = stretch.run_id, stretch.first, stretch.last
    window = read_window(reader, *where)
    asked = prompts_of(window)
    gaps = judge(window, asked)
    gaps["x_s"] = (gaps["t_ns"] - stretch.start_ns) / 1e9
    prompts = queries.prompts(window, asked, stretch.start_ns)
    ids = [int(i) for i in prompts["request_id"].unique()]
    blames = blamed(gaps, prompts, queries.requests(reader, stretch.run_id, ids))
    set_to = queries.settings(reader, stretch.run_id, _telling_step(stretch, blames, prompts)) or {}
    return Found(
        stretch,
        window,
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


def with_ttft(reader: Reader, side: Found) -> Found:
    """Adds the first request's own TTFT, which is what chunking costs it."""
    first = side.blames[0]
    if first.request_id is None:
        return side
    ttft_s = known(queries.ttft(reader, side.stretch.run_id, first.request_id))
    return replace(side, blames=(replace(first, ttft_s=ttft_s), *side.blames[1:]))


def bands(found_: Found) -> pd.DataFrame:
    """Steps with prompt tokens: start_s, end_s, kind; neighbours of one kind are one band.

    kind: "focus" where the request of the headline has a part, "recompute" where all was computed
    before, else "others".
    """
    rows, focus = found_.prompts, found_.focus.request_id if found_.focus else None
    step = rows["step"].to_numpy()
    opens = begins(step[1:] == step[:-1], len(rows))
    mine = of_islands(np.logical_or, rows["request_id"] == focus, opens)
    again = of_islands(np.logical_and, rows["phase"] == "recompute", opens)
    kind = np.select([mine, again], ["focus", "recompute"], "others")
    step = step[opens]
    start_s = of_islands(np.minimum, rows["start_s"], opens)
    end_s = of_islands(np.maximum, rows["end_s"], opens)
    joined = begins((kind[1:] == kind[:-1]) & (step[1:] == step[:-1] + 1), len(step))
    return pd.DataFrame(
        {
            "start_s": of_islands(np.minimum, start_s, joined),
            "end_s": of_islands(np.maximum, end_s, joined),
            "kind": kind[joined],
        }
    )
