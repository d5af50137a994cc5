"""Gaps between tokens on a log axis: the baseline, the calm ones, and the bad ones by cause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from app.figures.data import numbers, places
from app.theme import CALLOUT_PX, Theme, note
from app.units import count, duration, three

BAD = 2.0
"""A gap counts as bad from so many times its baseline on."""
_MAX_DOTS, _MAX_LINE = 400, 150
_DOTS = {"prefill": "prefill", "host": "overhead", "unexplained": "text"}
_DECADE = (1.0, 2.0, 5.0)


def is_bad(gaps: pd.DataFrame) -> pd.Series[bool]:
    """Gaps over twice their baseline; one without baseline is none."""
    bad: pd.Series[bool] = gaps["inflation"] > BAD
    return bad


def gap_traces(gaps: pd.DataFrame, look: Theme) -> list[dict[str, Any]]:
    """gaps: rows of `queries.interference.gaps`, and x_s."""
    causes = gaps["cause"].to_numpy(dtype=object)
    rows = gaps[["x_s", "itl_s", "baseline_s", "inflation", "gaps", "step"]]  # numbers alone: fast
    bad = is_bad(rows).to_numpy()
    unknown = rows["inflation"].isna().to_numpy() & (causes == "prefill")
    calm, open_ = _calm(rows[~bad & ~unknown], look), _open(rows[unknown], look)
    dots = [_bad(rows[bad & (causes == cause)], cause, look) for cause in _DOTS]
    return [_baseline(rows, look), calm, open_, *dots]


def _baseline(gaps: pd.DataFrame, look: Theme) -> dict[str, Any]:
    rows = gaps[gaps["baseline_s"].notna()]
    rows = rows.iloc[:: max(1, -(-len(rows) // _MAX_LINE))]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "baseline",
        "connectgaps": False,
        "x": places(rows["x_s"], 3),
        "y": numbers(rows["baseline_s"] * 1e3),
        "line": {"color": look.text, "width": 1.5, "dash": "dash", "shape": "hv"},
        "hovertemplate": "baseline %{y} ms<extra></extra>",
    }


def _calm(rows: pd.DataFrame, look: Theme) -> dict[str, Any]:
    """Gaps that are not bad; where they are many, the median one of each bin."""
    rows = rows.reset_index(drop=True)
    if len(rows) > _MAX_DOTS:
        bins = rows.index // -(-len(rows) // _MAX_DOTS)
        rows = rows[["x_s", "itl_s"]].groupby(bins).median()
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "gaps",
        "x": places(rows["x_s"], 3),
        "y": numbers(rows["itl_s"] * 1e3),
        "marker": {"color": look.decode, "size": 4},
        "hovertemplate": "%{y} ms<extra></extra>",
    }


def _open(rows: pd.DataFrame, look: Theme) -> dict[str, Any]:
    """Gaps with a prompt in them that have no baseline: how bad they are nobody knows."""
    if len(rows) > _MAX_DOTS:
        rows = rows.nlargest(_MAX_DOTS, "itl_s")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "gaps with a prompt, no baseline",
        "x": places(rows["x_s"], 3),
        "y": numbers(rows["itl_s"] * 1e3),
        "marker": {
            "color": look.prefill,
            "symbol": "circle-open",
            "size": 8,
            "line": {"width": 1.5},
        },
        "hovertemplate": "%{y} ms, no baseline<extra></extra>",
    }


def _bad(rows: pd.DataFrame, cause: str, look: Theme) -> dict[str, Any]:
    if len(rows) > _MAX_DOTS:
        rows = rows.nlargest(_MAX_DOTS, "itl_s")
    marker = {
        "color": look.fill(_DOTS[cause]),
        "size": 10,
        "line": {"color": look.text, "width": 1},
    }
    if cause != "prefill":
        marker |= {"symbol": "circle-open", "size": 9, "line": {"width": 2}}
    tells = [
        f"{duration(t)} · ×{three(f)} · {count(n)} gaps · step {int(s)}"
        for t, f, n, s in rows[["itl_s", "inflation", "gaps", "step"]].itertuples(index=False)
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"bad gaps, {cause}",
        "x": places(rows["x_s"], 4),
        "y": numbers(rows["itl_s"] * 1e3, 6),
        "customdata": numbers(rows["inflation"], 6),
        "text": tells,
        "marker": marker,
        "hovertemplate": "%{text}<extra></extra>",
    }


Worst = tuple[float, float, str]
"""A gap to call out: x_s, itl_s and words."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of a plot a pixel is: seconds along x, decades along y."""

    x_s: float
    decades: float


def gap_notes(
    baseline: str, worst: Worst | None, gaps: pd.DataFrame, span_s: float, scale: Scale, look: Theme
) -> list[dict[str, Any]]:
    """Names the dashed line, and calls out a gap where no dot of a bad one lies. scale: nearly."""
    found = []
    if baseline:
        low = {"x": 0, "xanchor": "left", "xshift": 6, "y": 0, "yref": "domain"}
        text = note(look, baseline, yanchor="bottom", **low)
        found.append({**text, "font": {**text["font"], "color": look.muted}})
    if worst is not None:
        x, itl_s, words = worst
        y = float(np.log10(itl_s * 1e3))
        place = _free_place(worst, gaps, span_s, scale)
        found.append(note(look, words, CALLOUT_PX, x=round(x, 4), y=round(y, 4), **place))
    return found


_LETTER_PX, _LINE_PX, _DOT_PX = 7.6, 20, 7
# Where the words may stand at a dot: how far right and up their left lower corner is, in widths and
# lines of theirs, and in pixels.
_PLACES = (
    (-0.5, 0.0, 0, 9),
    (0.0, -0.5, 11, 0),
    (-1.0, -0.5, -11, 0),
    (0.0, 0.0, 4, 9),
    (-1.0, 0.0, -4, 9),
    (-0.5, -1.0, 0, -9),
)


def _free_place(worst: Worst, gaps: pd.DataFrame, span_s: float, scale: Scale) -> dict[str, Any]:
    """Above, else beside, else below it: the first place with the fewest dots under the words."""
    x, itl_s, words = worst
    width = _LETTER_PX * len(re.sub("<.*?>", "", words))
    rows = gaps[is_bad(gaps)]
    across = ((rows["x_s"] - x) / scale.x_s).to_numpy()
    up = (np.log10(rows["itl_s"] / itl_s) / scale.decades).to_numpy()

    def cost(place: tuple[float, float, int, int]) -> tuple[bool, int]:
        left, low = place[0] * width + place[2], place[1] * _LINE_PX + place[3]
        outside = x / scale.x_s + left < 0 or x / scale.x_s + left + width > span_s / scale.x_s
        hit = (across > left - _DOT_PX) & (across < left + width + _DOT_PX)
        hit &= (up > low - _DOT_PX) & (up < low + _LINE_PX + _DOT_PX)
        return outside, int(hit.sum())

    found = min(_PLACES, key=cost)
    anchors = {-0.5: "center", 0.0: "left", -1.0: "right"}
    heights = {0.0: "bottom", -0.5: "middle", -1.0: "top"}
    return {
        "xanchor": anchors[found[0]],
        "yanchor": heights[found[1]],
        "xshift": found[2],
        "yshift": found[3],
    }


def gap_range(sides: Sequence[pd.DataFrame]) -> tuple[float, float]:
    """Ends of the log axis, ms: round numbers around all gaps and baselines."""
    times = pd.concat([gaps[c] for gaps in sides for c in ("itl_s", "baseline_s")]).dropna() * 1e3
    if times.empty:
        return 1.0, 1000.0
    low, high = float(times.min()), float(times.max())
    room = (high / low) ** 0.25  # above the longest gap, for what is said of it
    return _round_down(low * 0.62), _round_up(max(high * max(room, 1.35), low * 8))


def _round_down(value: float) -> float:
    power = 10.0 ** np.floor(np.log10(value))
    return float(max(n * power for n in _DECADE if n * power <= value * (1 + 1e-9)))


def _round_up(value: float) -> float:
    power = 10.0 ** np.floor(np.log10(value))
    return float(min(n * power for n in (*_DECADE, 10.0) if n * power >= value * (1 - 1e-9)))


def gap_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade, or its ones alone where they are many."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    every = [n * 10.0**p for p in powers for n in _DECADE]
    inside = [t for t in every if low <= t <= high]
    return inside if len(inside) <= 8 else [t for t in inside if np.log10(t) % 1 < 1e-9]
