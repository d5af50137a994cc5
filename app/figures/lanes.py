"""Interference: who decoded how fast while which prompt ran, and below it each gap on a log axis.

Two sides, A pinned and B, share spans and y axes; without A, B takes the whole width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from app.figures.data import Figure, numbers, places
from app.theme import CALLOUT_PX, Theme, axis, layout, note, rgba
from app.units import count, duration, three

HEIGHT_PX = 372
MAX_LANES = 12
BAD = 2.0
"""A gap counts as bad from so many times its baseline on."""
_MAX_DOTS, _MAX_BANDS, _MAX_LINE = 400, 300, 150
_LANES_DOMAIN, _GAPS_DOMAIN = [0.47, 1.0], [0.0, 0.385]
_DOTS = {"prefill": "prefill", "host": "overhead", "unexplained": "text"}
_DECADE = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Side:
    """What one half shows; times are seconds since its begin.

    gaps: rows of `queries.interference.gaps`, and x_s. lanes: slot, start_s, end_s, speed (token
    rate over baseline, NULL: unknown). lives: as the query. bands: start_s, end_s, kind ("focus",
    "others" or "recompute"). label: says what the focus is, which lasts from focus_s[0] to
    focus_s[1]; frozen: nobody decodes meanwhile. worst: a gap to call out, (x_s, itl_s, words).
    baseline: names the dashed line. missing: what the source does not report.
    """

    title: str
    span_s: float
    gaps: pd.DataFrame
    lanes: pd.DataFrame
    lives: pd.DataFrame
    bands: pd.DataFrame
    label: str = ""
    focus_s: tuple[float, float] | None = None
    frozen: bool = False
    worst: tuple[float, float, str] | None = None
    baseline: str = ""
    missing: str = ""


def lanes(a: Side | None, b: Side, look: Theme) -> Figure:
    """The whole picture; both sides of one span."""
    sides = [b] if a is None else [a, b]
    slots = max(_slots(side) for side in sides)
    data: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for place, side in enumerate(sides):
        traces, texts = _side(side, slots, look)
        data += [{**t, **_axes_of(place, lower)} for lower, t in traces]
        notes += [_placed(n, place, lower) for lower, n in texts]
    shape = layout(look, HEIGHT_PX, barmode="overlay", margin={"l": 64, "r": 10, "t": 26, "b": 40})
    shape |= _axes(sides, slots, look)
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


def _slots(side: Side) -> int:
    held = pd.concat([side.lanes["slot"], side.lives["slot"]])
    return int(min(max(held.nunique(), 1), MAX_LANES))


def _name(letter: str, number: int) -> str:
    return letter if number == 1 else f"{letter}{number}"


def _axes_of(place: int, lower: bool) -> dict[str, Any]:
    return {"xaxis": _name("x", place + 1), "yaxis": _name("y", 2 * place + 1 + lower)}


def _placed(text: dict[str, Any], place: int, lower: bool) -> dict[str, Any]:
    """On its side's axes; yref "domain" stands for the height of the plot, 0 to 1."""
    height = " domain" if text.get("yref") == "domain" else ""
    y = _name("y", 2 * place + 1 + lower)
    return {**text, "xref": _name("x", place + 1), "yref": f"{y}{height}"}


Placed = list[tuple[bool, dict[str, Any]]]


def _side(side: Side, slots: int, look: Theme) -> tuple[Placed, Placed]:
    """Traces and annotations, each with whether it belongs to the lower axis."""
    rows = _rows(side)
    above = [_band(side, kind, slots, look) for kind in ("others", "recompute", "focus")]
    above += [_alive(side, rows, look), *_bars(side, rows, look)]
    below = [_baseline(side, look), _calm(side, look)]
    below += [_bad(side, cause, look) for cause in _DOTS]
    texts: Placed = [(False, _title(side, look))]
    texts += [(False, n) for n in _band_notes(side, slots, look)]
    texts += [(True, n) for n in _gap_notes(side, look)]
    return [(False, t) for t in above] + [(True, t) for t in below], texts


def _rows(side: Side) -> dict[int, int]:
    """Row of each slot that is drawn, 1 on top."""
    held = pd.concat([side.lanes["slot"], side.lives["slot"]]).unique()
    return {int(slot): row for row, slot in enumerate(sorted(held)[:MAX_LANES], start=1)}


_ALPHA = {"focus": 0.42, "recompute": 0.34, "others": 0.2}


def _band(side: Side, kind: str, slots: int, look: Theme) -> dict[str, Any]:
    """One trace for all bands of a kind: shapes are slow in numbers. Bars, to lie behind bars."""
    mine = side.bands[side.bands["kind"] == kind]
    if len(mine) > _MAX_BANDS:
        mine = mine.assign(length=mine["end_s"] - mine["start_s"]).nlargest(_MAX_BANDS, "length")
    colour = look.fill("lost" if kind == "recompute" else "prefill")
    return {
        "type": "bar",
        "orientation": "h",
        "name": "recompute" if kind == "recompute" else f"{kind} prefill",
        "base": places(mine["start_s"], 4),
        "x": places(mine["end_s"] - mine["start_s"], 4),
        "y": [slots / 2 + 0.5] * len(mine),
        "width": slots + 0.1,
        "marker": {"color": rgba(colour, _ALPHA[kind]), "line": {"width": 0}},
        "hoverinfo": "skip",
    }


def _alive(side: Side, rows: dict[int, int], look: Theme) -> dict[str, Any]:
    """A hair line where a stream holds a slot: no bar on it is a stall, no line is nobody."""
    shown = side.lives[side.lives["slot"].isin(list(rows))]
    start = shown["start_s"].clip(lower=0.0)
    return {
        "type": "bar",
        "orientation": "h",
        "name": "streams",
        "base": places(start, 4),
        "x": places(shown["end_s"] - start, 4),
        "y": [rows[int(slot)] for slot in shown["slot"]],
        "width": 0.06,
        "marker": {"color": look.muted, "line": {"width": 0}},
        "hoverinfo": "skip",
    }


def _lines(name: str) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "name": name, "connectgaps": False}


def _bars(side: Side, rows: dict[int, int], look: Theme) -> list[dict[str, Any]]:
    shown = side.lanes[side.lanes["slot"].isin(list(rows))]
    known_speed = shown["speed"].notna()
    fast = shown[known_speed & (shown["speed"] > 0)]
    unknown = shown[~known_speed]
    fill = {"color": look.decode, "line": {"width": 0}}
    hollow = {"color": "rgba(0,0,0,0)", "line": {"color": look.decode, "width": 1}}
    ones = pd.Series(1.0, index=unknown.index)
    tells = [f"{three(100 * s)}% of the baseline's rate" for s in fast["speed"]]
    return [
        _bar("decode", fast, fast["speed"], rows, fill, tells),
        _bar("no baseline", unknown, ones, rows, hollow, ["no baseline"] * len(unknown)),
    ]


def _bar(
    name: str,
    bars: pd.DataFrame,
    height: pd.Series[Any],
    rows: dict[int, int],
    marker: dict[str, Any],
    tells: list[str],
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": places(bars["start_s"], 4),
        "x": places(bars["end_s"] - bars["start_s"], 4),
        "y": [rows[int(slot)] for slot in bars["slot"]],
        "width": places(height * 0.74, 3),
        "marker": marker,
        "text": tells,
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
    }


def _baseline(side: Side, look: Theme) -> dict[str, Any]:
    rows = side.gaps[side.gaps["baseline_s"].notna()]
    rows = rows.iloc[:: max(1, -(-len(rows) // _MAX_LINE))]
    return {
        **_lines("baseline"),
        "x": places(rows["x_s"], 3),
        "y": numbers(rows["baseline_s"] * 1e3),
        "line": {"color": look.text, "width": 1.5, "dash": "dash", "shape": "hv"},
        "hovertemplate": "baseline %{y} ms<extra></extra>",
    }


def is_bad(gaps: pd.DataFrame) -> pd.Series[bool]:
    """Gaps over twice their baseline; one without baseline is none."""
    return gaps["inflation"].fillna(0.0) > BAD


def _calm(side: Side, look: Theme) -> dict[str, Any]:
    """Gaps that are not bad; where they are many, the median one of each bin."""
    rows = side.gaps[~is_bad(side.gaps)].reset_index(drop=True)
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


def _bad(side: Side, cause: str, look: Theme) -> dict[str, Any]:
    rows = side.gaps[is_bad(side.gaps) & (side.gaps["cause"] == cause)]
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


# --- words ---


def _title(side: Side, look: Theme) -> dict[str, Any]:
    above = {"x": 0, "y": 1, "yref": "domain", "xanchor": "left", "yanchor": "bottom"}
    return note(look, f"<b>{side.title}</b>", CALLOUT_PX, **above)


def _band_notes(side: Side, slots: int, look: Theme) -> list[dict[str, Any]]:
    if side.missing:
        centre = {"x": side.span_s / 2, "y": slots / 2 + 0.5}
        return [note(look, side.missing, CALLOUT_PX, **centre)]
    if side.focus_s is None or not side.label:
        return []
    start, end = side.focus_s
    middle = (max(start, 0.0) + min(end, side.span_s)) / 2
    x, anchor = middle, "center"
    if middle < 0.3 * side.span_s:
        x, anchor = 0.0, "left"
    elif middle > 0.7 * side.span_s:
        x, anchor = side.span_s, "right"
    found = [note(look, side.label, x=x, y=0.4, xanchor=anchor, yanchor="bottom", yshift=-1)]
    if side.frozen and end - start > 0.07 * side.span_s:
        found.append(note(look, "nobody<br>decodes", CALLOUT_PX, x=middle, y=slots / 2 + 0.5))
    return found


def _gap_notes(side: Side, look: Theme) -> list[dict[str, Any]]:
    found = []
    if side.baseline:
        low = {"x": 0, "xanchor": "left", "xshift": 6, "y": 0, "yref": "domain"}
        text = note(look, side.baseline, yanchor="bottom", **low)
        found.append({**text, "font": {**text["font"], "color": look.muted}})
    if side.worst is not None:
        x, itl_s, words = side.worst
        right = x > 0.62 * side.span_s
        place = {"xanchor": "right" if right else "left", "xshift": -10 if right else 10}
        y = float(np.log10(itl_s * 1e3))
        found.append(note(look, words, CALLOUT_PX, x=round(x, 4), y=round(y, 4), **place))
    return found


# --- axes ---


def gap_range(sides: list[Side]) -> tuple[float, float]:
    """Ends of the log axis, ms: round numbers around all gaps and baselines."""
    times = pd.concat([s.gaps[c] for s in sides for c in ("itl_s", "baseline_s")]).dropna() * 1e3
    if times.empty:
        return 1.0, 1000.0
    low, high = float(times.min()), float(times.max())
    return _round_down(low * 0.62), _round_up(max(high * 1.35, low * 8))


def _round_down(value: float) -> float:
    power = 10.0 ** np.floor(np.log10(value))
    return float(max(n * power for n in _DECADE if n * power <= value * (1 + 1e-9)))


def _round_up(value: float) -> float:
    power = 10.0 ** np.floor(np.log10(value))
    return float(min(n * power for n in (*_DECADE, 10.0) if n * power >= value * (1 - 1e-9)))


def _ticks(low: float, high: float) -> list[float]:
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    every = [n * 10.0**p for p in powers for n in _DECADE]
    inside = [t for t in every if low <= t <= high]
    return inside if len(inside) <= 8 else [t for t in inside if np.log10(t) % 1 < 1e-9]


def _axes(sides: list[Side], slots: int, look: Theme) -> dict[str, Any]:
    low, high = gap_range(sides)
    ticks = _ticks(low, high)
    ends = [float(np.log10(low)), float(np.log10(high))]
    out: dict[str, Any] = {}
    halves = [[0.0, 1.0]] if len(sides) == 1 else [[0.0, 0.487], [0.513, 1.0]]
    for place, (side, domain) in enumerate(zip(sides, halves, strict=True)):
        x, y, y2 = _name("x", place + 1), _name("y", 2 * place + 1), _name("y", 2 * place + 2)
        first = place == 0
        out[_long(x)] = axis(
            look, "seconds", domain=domain, range=[0, side.span_s], anchor=y2, nticks=8
        )
        out[_long(y)] = axis(
            look,
            "slot" if first else "",
            domain=_LANES_DOMAIN,
            anchor=x,
            **_lane_ticks(side, first),
            range=[slots + 0.6, 0.4 - _LABEL_ROW],
            showgrid=False,
            showline=False,
            ticks="",
        )
        out[_long(y2)] = axis(
            look,
            "ITL, ms (log)" if first else "",
            domain=_GAPS_DOMAIN,
            anchor=x,
            type="log",
            range=ends,
            tickvals=ticks,
            ticktext=[f"{t:g}" for t in ticks] if first else [""] * 9,
            showline=False,
            ticks="",
        )
    return out


_LABEL_ROW = 1.3


def _lane_ticks(side: Side, first: bool) -> dict[str, Any]:
    rows = _rows(side)
    names = [str(slot + 1) if first else "" for slot in rows]
    return {"tickvals": list(rows.values()), "ticktext": names}


def _long(name: str) -> str:
    return f"{name[0]}axis{name[1:]}"
