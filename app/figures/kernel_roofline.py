"""The roofline with a point for each kernel of a step: its area is its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from app.figures.data import Figure, significant
from app.figures.kernel_parts import Kernel, TimedStep, share
from app.figures.plane import Ends, Peaks, Scale, axes, ends_of
from app.figures.roofline import roof_notes, roofs
from app.theme import CALLOUT_PX, TEXT_PX, Theme, layout, note, rgba
from app.units import count, duration, si, three

HEIGHT_PX = 322
PLOT_PX = (640, 262)
_MARGIN = {"l": 66, "r": 10, "t": 18, "b": 42}
_LARGEST_PX = 64.0  # diameter of a kernel that takes the whole step
_SMALLEST_PX = 7.0
_LABEL_PX = 17  # of a line of labels
_OVER = 1.0005  # a kernel this far over its roof is over it, not rounded


class Point(NamedTuple):
    """A kernel on the plane: FLOP/byte, FLOP/s, and its share of the step."""

    kernel: Kernel
    intensity: float
    achieved: float
    share: float


def points(step: TimedStep) -> list[Point]:
    """Those with counted FLOPs and bytes; the others have no intensity."""
    found = []
    for kernel in step.kernels:
        at = kernel.intensity
        if at is not None and kernel.flops and kernel.time_s > 0:
            part = kernel.time_s / step.t_step_s
            found.append(Point(kernel, at, kernel.flops / kernel.time_s, part))
    return found


def kernel_roofline(step: TimedStep, peaks: Peaks | None, look: Theme) -> Figure:
    """Without peaks the points stand without a roof."""
    shown = points(step)
    cloud = pd.DataFrame(
        {
            "achieved_flops": [p.achieved for p in shown],
            "intensity": [p.intensity for p in shown],
        },
        dtype=float,
    )
    ends, scale = ends_of(cloud, peaks), Scale()
    data: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    if peaks:
        data += roofs(peaks, ends, look, scale)
        notes += roof_notes(peaks, ends, look, scale, PLOT_PX)
        data += _above(shown, peaks, look, notes)
    data.append(_marks(shown, peaks, look))
    notes += _labels(shown, peaks, ends, look)
    shape = layout(look, HEIGHT_PX, margin=dict(_MARGIN))
    shape |= axes(ends, peaks, None, look, scale, normalised=False)
    shape["yaxis"]["title"]["text"] = "achieved FLOP/s of the kernel"
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


def _diameter_px(point: Point) -> float:
    """Area is proportional to time, but for those too small to be seen."""
    return max(_SMALLEST_PX, _LARGEST_PX * math.sqrt(point.share))


def _marks(shown: Sequence[Point], peaks: Peaks | None, look: Theme) -> dict[str, Any]:
    colours = [look.fill(p.kernel.role(peaks)) if peaks else look.padding for p in shown]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "kernels",
        "x": [significant(p.intensity, 4) for p in shown],
        "y": [significant(p.achieved, 4) for p in shown],
        "customdata": [_told(p, peaks) for p in shown],
        "marker": {
            "color": [rgba(colour, 0.55) for colour in colours],
            "size": [round(_diameter_px(p), 1) for p in shown],
            "line": {"width": 1.5, "color": colours},
            "opacity": 1,
        },
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _told(point: Point, peaks: Peaks | None) -> str:
    kernel = point.kernel
    lines = [
        f"<b>{kernel.name}</b>, {count(kernel.calls)} calls",
        f"{duration(kernel.time_s)}, {share(point.share)} of the step",
        f"{three(point.intensity)} FLOP/byte",
        f"{si(point.achieved, 'FLOP/s')}, {si((kernel.bytes or 0) / kernel.time_s, 'B/s')}",
    ]
    reached = kernel.reached(peaks)
    if reached is not None:
        lines.append(f"{share(reached)} of its roof")
    return "<br>".join(lines)


def _labels(
    shown: Sequence[Point], peaks: Peaks | None, ends: Ends, look: Theme
) -> list[dict[str, Any]]:
    """Names beside the points, pushed apart where they would cover each other."""
    ordered = sorted(shown, key=lambda p: p.achieved)
    heights = spread([_height_px(p, ends) for p in ordered])
    return [_label(p, at, peaks, ends, look) for p, at in zip(ordered, heights, strict=True)]


def _height_px(point: Point, ends: Ends) -> float:
    """Above the bottom of the plot."""
    whole = math.log10(ends.top / ends.bottom)
    return math.log10(point.achieved / ends.bottom) / whole * PLOT_PX[1]


def spread(heights: Sequence[float]) -> list[float]:
    """Rising heights, px, at least a line apart: runs that are too near share what they move."""
    runs: list[list[float]] = []  # of each: its middle, and how many lines
    for height in heights:
        runs.append([height, 1])
        while len(runs) > 1 and _too_near(*runs[-2:]):
            (low, below), (high, above) = runs[-2:]
            middle = (low * below + high * above) / (below + above)
            runs[-2:] = [[middle, below + above]]
    return [
        middle + (i - (lines - 1) / 2) * _LABEL_PX
        for middle, lines in runs
        for i in range(int(lines))
    ]


def _too_near(low: list[float], high: list[float]) -> bool:
    return high[0] - low[0] < (low[1] + high[1]) / 2 * _LABEL_PX


def _label(
    point: Point, at_px: float, peaks: Peaks | None, ends: Ends, look: Theme
) -> dict[str, Any]:
    reached = point.kernel.reached(peaks)
    text = point.kernel.short + (f" {share(reached)}" if reached is not None else "")
    right = math.log(point.intensity / ends.left) > 0.7 * math.log(ends.right / ends.left)
    radius = _diameter_px(point) / 2
    away = radius + 16
    lines = {
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": look.muted,
        "standoff": round(radius, 1),
        "ax": round(-away if right else away, 1),
        "ay": round(_height_px(point, ends) - at_px, 1),
        "xanchor": "right" if right else "left",
        "bgcolor": rgba(look.background, 0.75),
        "borderpad": 1,
    }
    place = {
        "x": round(math.log10(point.intensity), 4),
        "y": round(math.log10(point.achieved), 4),
    }
    return note(look, text, TEXT_PX, **place, **lines)


def _above(
    shown: Sequence[Point], peaks: Peaks, look: Theme, notes: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rings around kernels over the roof: what they read was in a cache, or the peak is wrong."""
    over = [p for p in shown if (p.kernel.reached(peaks) or 0) > _OVER]
    if not over:
        return []
    text = f"<b>{len(over)} above the roof: read from a cache, or recalibrate</b>"
    place = {"xref": "paper", "yref": "paper", "x": 0.02, "y": 0.98, "xanchor": "left"}
    notes.append(note(look, text, CALLOUT_PX, **place, yanchor="top"))
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "above the roof",
            "hoverinfo": "skip",
            "x": [significant(p.intensity, 4) for p in over],
            "y": [significant(p.achieved, 4) for p in over],
            "marker": {
                "color": "rgba(0,0,0,0)",
                "size": [round(_diameter_px(p) + 8, 1) for p in over],
                "line": {"color": look.text, "width": 2},
            },
        }
    ]
