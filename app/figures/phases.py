"""Both phases of a model under a device's datasheet roofs: decode climbs with its batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.crossover import heading
from app.figures.data import Figure, numbers, significant
from app.figures.plane import Decode, Ends, Peaks, Scale, at, axes, slope_degrees
from app.figures.roofline import kv_cap, roofs
from app.theme import CALLOUT_PX, Theme, layout, note, rgba
from app.units import percent, si, three

HEIGHT_PX = 242
_LEFT = 0.5
_PLOT_PX = (416, 178)  # inside of the figure at 1280 px


@dataclass(frozen=True, slots=True)
class Point:
    """A step on the plane: FLOP/byte, FLOP/s over its whole time, and what it is."""

    phase: str
    text: str
    intensity: float
    achieved_flops: float
    chosen: bool


def phases(
    points: Sequence[Point], curve: pd.DataFrame, peaks: Peaks, decode: Decode | None, look: Theme
) -> Figure:
    """curve: batch, intensity and achieved_flops of decode steps over batch."""
    ends, scale = _ends(points, curve, peaks), Scale()
    data = [*roofs(peaks, ends, look, scale), _climb(curve, look)]
    notes = [heading(look, "Both phases under the roofs"), *_roof_notes(peaks, ends, look)]
    if decode:
        data += kv_cap(decode, ends, look, scale, notes)
    for point in sorted(points, key=lambda p: p.chosen):
        data.append(_dot(point, look))
        notes.append(_label(point, peaks, ends, look))
    shape = layout(look, HEIGHT_PX, margin={"l": 66, "r": 10, "t": 24, "b": 40})
    shape |= axes(ends, peaks, None, look, scale, False)
    shape["yaxis"] |= _decades(ends)
    shape["yaxis"]["title"]["text"] = "FLOP/s of the step"
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


def _decades(ends: Ends) -> dict[str, Any]:
    powers = range(math.ceil(math.log10(ends.bottom)), math.floor(math.log10(ends.top)) + 1)
    values = [10.0**p for p in powers]
    return {"tickvals": values, "ticktext": [si(v, "") for v in values]}


def _roof_notes(peaks: Peaks, ends: Ends, look: Theme) -> list[dict[str, Any]]:
    """Over the flat roof at its right end, and along the slope."""
    flat = note(
        look,
        f"{si(peaks.flops, 'FLOP/s')} · ridge {three(peaks.ridge)}",
        **at(ends.right, peaks.flops, Scale()),
        xanchor="right",
        yanchor="bottom",
        yshift=2,
    )
    x = math.sqrt(ends.left * peaks.ridge)
    slope = note(
        look,
        si(peaks.bandwidth, "B/s"),
        **at(x, peaks.roof(x), Scale()),
        textangle=-slope_degrees(ends, _PLOT_PX),
        xanchor="center",
        yanchor="bottom",
        yshift=5,
    )
    return [flat, slope]


def _ends(points: Sequence[Point], curve: pd.DataFrame, peaks: Peaks) -> Ends:
    """Wide enough for every step: a prefill lies far right of the ridge."""
    xs = [p.intensity for p in points] + curve["intensity"].tolist()
    ys = [p.achieved_flops for p in points] + curve["achieved_flops"].tolist()
    left = min(_LEFT, min(xs) * 0.7)
    right = max(4 * peaks.ridge, max(xs) * 1.6)
    return Ends(left, right, min(peaks.roof(left), min(ys)) * 0.5, peaks.flops * 5)


def _climb(curve: pd.DataFrame, look: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "decode over batch",
        "x": numbers(curve["intensity"]),
        "y": numbers(curve["achieved_flops"]),
        "customdata": numbers(curve["batch"]),
        "line": {"color": look.decode, "width": 6},
        "opacity": 0.55,
        "hovertemplate": "decode, batch %{customdata}<br>%{x:.3g} FLOP/byte<extra></extra>",
    }


def _dot(point: Point, look: Theme) -> dict[str, Any]:
    ink = {"color": look.text, "width": 2}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": point.phase,
        "x": [significant(point.intensity, 4)],
        "y": [significant(point.achieved_flops, 4)],
        "marker": {
            "color": look.fill(point.phase),
            "size": 16 if point.chosen else 11,
            "line": ink,
        },
        "hovertemplate": f"{point.text}<br>%{{x:.3g}} FLOP/byte · %{{y:.3s}}FLOP/s<extra></extra>",
    }


def _label(point: Point, peaks: Peaks, ends: Ends, look: Theme) -> dict[str, Any]:
    """Beside the point, on the side that has room, under the roofs."""
    across = math.log(point.intensity / ends.left) / math.log(ends.right / ends.left)
    side = {"xanchor": "right", "xshift": -4} if across > 0.6 else {"xanchor": "left", "xshift": 12}
    reached = point.achieved_flops / peaks.roof(point.intensity)
    share = f", {percent(reached)} of its roof" if reached < 0.995 else ""
    size = CALLOUT_PX if point.chosen else 13
    place = at(point.intensity, point.achieved_flops, Scale())
    back = {"bgcolor": rgba(look.background, 0.75)}
    text = f"<b>{point.text}</b>{share}" if point.chosen else point.text + share
    return note(look, text, size, **place, **side, **back, yanchor="top", yshift=-8)
