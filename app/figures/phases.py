"""Both phases of a model under a device's datasheet roofs: decode climbs with its batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.crossover import LIGHTER, heading
from app.figures.data import Figure, numbers, significant
from app.figures.plane import Decode, Ends, Peaks, Scale, axes
from app.figures.roofline import kv_cap, roofs
from app.theme import CALLOUT_PX, TEXT_PX, Theme, layout, note, rgba
from app.units import si, three, tick

HEIGHT_PX = 242
_LEFT = 0.5


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
    notes = [_heading(peaks, look)]
    if decode:
        data += kv_cap(decode, ends, look, scale, notes, 0.45)
    for point in sorted(points, key=lambda p: p.chosen):
        data.append(_dot(point, look))
        notes.append(_label(point, peaks, look))
    shape = layout(look, HEIGHT_PX, margin={"l": 66, "r": 10, "t": 24, "b": 40})
    shape |= axes(ends, peaks, None, look, scale, False)
    shape["xaxis"] |= _decades(ends.left, ends.right, "g") | LIGHTER
    shape["yaxis"] |= _decades(ends.bottom, ends.top, "si") | LIGHTER
    shape["yaxis"]["title"]["text"] = "FLOP/s of the step"
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


def _heading(peaks: Peaks, look: Theme) -> dict[str, Any]:
    """The roofs stand in the heading, where no point can cover them."""
    roofs_of = f"{si(peaks.bandwidth, 'B/s')} and {si(peaks.flops, 'FLOP/s')}"
    text = f"Both phases</b> under {roofs_of}, <b>ridge {three(peaks.ridge)}"
    return heading(look, text)


def _decades(low: float, high: float, kind: str) -> dict[str, Any]:
    """Powers of ten only, plain or with prefixes."""
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    values = [10.0**p for p in powers]
    texts = [tick(v, "") if kind == "si" else f"{v:,g}" for v in values]
    return {"tickvals": values, "ticktext": texts}


def _ends(points: Sequence[Point], curve: pd.DataFrame, peaks: Peaks) -> Ends:
    """Wide enough for every step: a prefill lies far right of the ridge."""
    xs = [p.intensity for p in points] + curve["intensity"].tolist()
    ys = [p.achieved_flops for p in points] + curve["achieved_flops"].tolist()
    left = min(_LEFT, min(xs) * 0.7)
    right = max(4 * peaks.ridge, max(xs) * 1.6)
    return Ends(left, right, min(peaks.roof(left), min(ys)) * 0.5, peaks.flops * 2.5)


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


def _label(point: Point, peaks: Peaks, look: Theme) -> dict[str, Any]:
    """In the corner under the flat roof, where no step can be, with the colour of its dot."""
    reached = point.achieved_flops / peaks.roof(point.intensity)
    share = f": {reached:.0%} of its roof" if reached < 0.995 else ""
    dot = f'<span style="color:{look.fill(point.phase)}">●</span>'
    text = f"<b>{point.text}</b>{share}" if point.chosen else point.text + share
    size = CALLOUT_PX if point.chosen else TEXT_PX
    place = {"xref": "paper", "x": 0.99, "yref": "paper", "y": 0.34 if point.chosen else 0.2}
    back = {"bgcolor": rgba(look.background, 0.75)}
    return note(look, f"{dot} {text}", size, **place, **back, xanchor="right", yanchor="middle")
