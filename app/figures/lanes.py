"""Interference: who decoded how fast while which prompt ran, and below it each gap on a log axis.

Two sides, A pinned and B, share spans and y axes; without A, B takes the whole width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from app.figures.data import Figure, places
from app.figures.gaps import Scale, Worst, gap_notes, gap_range, gap_ticks, gap_traces
from app.theme import CALLOUT_PX, Theme, axis, layout, note, rgba
from app.units import three

HEIGHT_PX = 372
_WIDTH_PX = 1170
MAX_LANES = 12
_MAX_BANDS = 300
_LANES_DOMAIN, _GAPS_DOMAIN = [0.47, 1.0], [0.0, 0.385]


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
    worst: Worst | None = None
    baseline: str = ""
    missing: str = ""


def lanes(a: Side | None, b: Side, look: Theme) -> Figure:
    """The whole picture; both sides of one span."""
    sides = [b] if a is None else [a, b]
    rows = _rows(sides)
    data: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    scale = _scale(sides)
    for place, side in enumerate(sides):
        traces, texts = _side(side, rows, scale, look)
        data += [{**t, **_axes_of(place, lower)} for lower, t in traces]
        notes += [_placed(n, place, lower) for lower, n in texts]
    shape = layout(look, HEIGHT_PX, barmode="overlay", margin={"l": 64, "r": 10, "t": 26, "b": 40})
    shape |= _axes(sides, rows, look)
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


def _scale(sides: list[Side]) -> Scale:
    """Of the lower plots, on a page of the usual width."""
    low, high = gap_range([side.gaps for side in sides])
    height = (HEIGHT_PX - 66) * (_GAPS_DOMAIN[1] - _GAPS_DOMAIN[0])
    return Scale(sides[0].span_s * len(sides) / _WIDTH_PX, float(np.log10(high / low)) / height)


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


def _side(side: Side, rows: dict[int, int], scale: Scale, look: Theme) -> tuple[Placed, Placed]:
    """Traces and annotations, each with whether it belongs to the lower axis."""
    slots = max(len(rows), 1)
    above = [_band(side, kind, slots, look) for kind in ("others", "recompute", "focus")]
    above += [_alive(side, rows, look), *_bars(side, rows, look)]
    below = gap_traces(side.gaps, look)
    texts: Placed = [(False, _title(side, look))]
    texts += [(False, n) for n in _band_notes(side, slots, look)]
    said = gap_notes(side.baseline, side.worst, side.gaps, side.span_s, scale, look)
    texts += [(True, n) for n in said]
    return [(False, t) for t in above] + [(True, t) for t in below], texts


def _rows(sides: list[Side]) -> dict[int, int]:
    """Row of each slot that is drawn, 1 on top, the same on both sides."""
    held = pd.concat([rows["slot"] for side in sides for rows in (side.lanes, side.lives)]).unique()
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


def _bars(side: Side, rows: dict[int, int], look: Theme) -> list[dict[str, Any]]:
    shown = side.lanes[side.lanes["slot"].isin(list(rows))]
    known_speed = shown["speed"].notna()
    fast = shown[known_speed & (shown["speed"] > 0)]
    unknown = shown[~known_speed]
    fill = {"color": look.decode, "line": {"width": 0}}
    hollow = {"color": "rgba(0,0,0,0)", "line": {"color": look.decode, "width": 1}}
    ones = pd.Series(1.0, index=unknown.index)
    few = {s: f"{three(100 * s)}% of the baseline's rate" for s in fast["speed"].unique()}
    tells = [few[s] for s in fast["speed"]]
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


# --- axes ---


def _axes(sides: list[Side], rows: dict[int, int], look: Theme) -> dict[str, Any]:
    low, high = gap_range([side.gaps for side in sides])
    ticks = gap_ticks(low, high)
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
            **_lane_ticks(rows, first),
            range=[max(len(rows), 1) + 0.6, 0.4 - _LABEL_ROW],
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


def _lane_ticks(rows: dict[int, int], first: bool) -> dict[str, Any]:
    names = [str(slot + 1) if first else "" for slot in rows]
    return {"tickvals": list(rows.values()), "ticktext": names}


def _long(name: str) -> str:
    return f"{name[0]}axis{name[1:]}"
