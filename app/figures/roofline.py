"""The roofline: where steps are, where they could be. Log-log, absolute or over ridge and peak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from app.figures import other_roofs
from app.figures.data import Figure, numbers, significant
from app.figures.other_roofs import Other
from app.figures.plane import PLOT_PX, Decode, Ends, Peaks, Scale, at, axes, ends_of, slope_degrees
from app.theme import Theme, layout, note, rgba
from app.units import si, three
from engine.physics.roofline import intensity_asymptote

HEIGHT_PX = 448
# Right of this share of the axis the live point's label stands left of it: it would be cut off.
_LABEL_FLIPS = 0.75
_LABEL_SPAN = 12.0  # the name of the compute roof covers about so many times its right end


def roofline(
    cloud: pd.DataFrame,
    trail: pd.DataFrame,
    peaks: Peaks | None,
    decode: Decode | None,
    look: Theme,
    normalised: bool = False,
    live: bool = True,
    others: Sequence[Other] = (),
) -> Figure:
    """cloud and trail: rows of `queries.roofline.cloud` and `.trail` (newest last).

    live: the last of the trail is the newest step; else it is one that somebody holds. others:
    roofs beside the run's; they need the run's own.
    """
    scale = Scale(1 / peaks.ridge, 1 / peaks.flops) if peaks and normalised else Scale()
    ends = other_roofs.room(ends_of(cloud, peaks), peaks, others, normalised)
    data = _clouds(cloud, look, scale)
    notes: list[dict[str, Any]] = []
    if peaks:
        data += other_roofs.draw(others, peaks, trail, ends, look, normalised, notes)
        data += roofs(peaks, ends, look, scale)
        notes += roof_notes(peaks, ends, look, scale)
        data += _above(cloud, peaks, look, scale, notes)
        data += _drop(trail, peaks, ends, look, scale, notes)
    if decode:
        data += kv_cap(decode, ends, look, scale, notes)
        data.append({"type": "scatter", "x": [None], "y": [None], "xaxis": "x2", "name": "batch"})
    data += _trail(trail, look, scale, "live" if live else "selected")
    shape = layout(look, HEIGHT_PX, margin={"l": 66, "r": 10, "t": 44, "b": 42})
    shape |= axes(ends, peaks, decode, look, scale, normalised)
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


def _points(rows: pd.DataFrame, scale: Scale) -> dict[str, Any]:
    return {
        "x": numbers(rows["intensity"], 4, scale.x),
        "y": numbers(rows["achieved_flops"], 4, scale.y),
    }


def _clouds(cloud: pd.DataFrame, look: Theme, scale: Scale) -> list[dict[str, Any]]:
    prompt = cloud["phase"] != "decode"
    groups = (("with prefill", "prefill", cloud[prompt]), ("decode", "decode", cloud[~prompt]))
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            **_points(rows, scale),
            "customdata": rows["step"].tolist(),
            "marker": {"color": look.fill(role), "size": 8, "opacity": 0.25, "line": {"width": 0}},
            "hovertemplate": "step %{customdata}<br>%{x:.3g} · %{y:.3s}<extra>" + name + "</extra>",
        }
        for name, role, rows in groups
    ]


def roofs(peaks: Peaks, ends: Ends, look: Theme, scale: Scale) -> list[dict[str, Any]]:
    """Slope and flat, 3 px each; datasheet peaks are dashed."""
    dash = "solid" if peaks.source == "measured" else "dash"
    line = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    xs = (ends.left, peaks.ridge, ends.right)
    x = [significant(v * scale.x, 5) for v in xs]
    y = [significant(peaks.roof(v) * scale.y, 5) for v in xs]
    slope = {"color": look.memory, "width": 3, "dash": dash}
    flat = {"color": look.compute, "width": 3, "dash": dash}
    return [
        {**line, "name": "memory roof", "x": x[:2], "y": y[:2], "line": slope},
        {**line, "name": "compute roof", "x": x[1:], "y": y[1:], "line": flat},
    ]


def roof_notes(
    peaks: Peaks, ends: Ends, look: Theme, scale: Scale, plot_px: tuple[int, int] = PLOT_PX
) -> list[dict[str, Any]]:
    """What the roofs are called. plot_px: the inside of the figure."""
    top = note(
        look,
        f"compute roof {si(peaks.flops, 'FLOP/s')} ({peaks.source})",
        **at(ends.right, peaks.flops, scale),
        xanchor="right",
        yanchor="bottom",
        yshift=3,
        bgcolor=look.background,
    )
    x = math.sqrt(ends.left * peaks.ridge)
    slope = note(
        look,
        f"memory roof {si(peaks.bandwidth, 'B/s')} ({peaks.source})",
        **at(x, peaks.roof(x), scale),
        textangle=-slope_degrees(ends, plot_px),
        yanchor="bottom",
        xanchor="center",
        yshift=4,
    )
    near_the_end = ends.right / peaks.ridge < _LABEL_SPAN  # the roof's own name would cover it
    ridge = note(
        look,
        f"ridge {three(peaks.ridge)}",
        **at(peaks.ridge, peaks.flops, scale),
        yanchor="bottom",
        xanchor="center",
        yshift=20 if near_the_end else 0,
    )
    return [top, slope, ridge]


def _above(
    cloud: pd.DataFrame, peaks: Peaks, look: Theme, scale: Scale, notes: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rings around steps over the roof: the peak is wrong there, not the step."""
    roof = [peaks.roof(float(i)) for i in cloud["intensity"]]
    rows = cloud[cloud["achieved_flops"].to_numpy() > [r * 1.0005 for r in roof]]
    if rows.empty:
        return []
    worst = rows.nlargest(1, "achieved_flops").iloc[0]
    text = f"<b>{len(rows)} above the roof: recalibrate</b>"
    place = at(float(worst["intensity"]), float(worst["achieved_flops"]), scale)
    notes.append(note(look, text, 15, **place, xanchor="left", yanchor="bottom", xshift=10))
    ring = {"color": "rgba(0,0,0,0)", "size": 14, "line": {"color": look.text, "width": 2}}
    base = {"type": "scatter", "mode": "markers", "name": "above the roof", "hoverinfo": "skip"}
    return [{**base, **_points(rows, scale), "marker": ring}]


def _drop(
    trail: pd.DataFrame,
    peaks: Peaks,
    ends: Ends,
    look: Theme,
    scale: Scale,
    notes: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """A line from the live point to the roof over it, with the share reached."""
    if trail.empty:
        return []
    x, y = float(trail["intensity"].iloc[-1]), float(trail["achieved_flops"].iloc[-1])
    if x <= 0 or y <= 0:
        return []
    roof = peaks.roof(x)
    place = at(x, math.sqrt(y * roof), scale)
    share = f"<b>{three(100 * y / roof)}% of roof</b>"
    right = math.log(x / ends.left) > _LABEL_FLIPS * math.log(ends.right / ends.left)
    side = {"xanchor": "right", "xshift": -12} if right else {"xanchor": "left", "xshift": 12}
    back = {"yshift": -16, "bgcolor": rgba(look.background, 0.8)}
    notes.append(note(look, share, 18, **place, **side, **back))
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "drop line",
            "x": [significant(x * scale.x, 5)] * 2,
            "y": [significant(y * scale.y, 5), significant(roof * scale.y, 5)],
            "line": {"color": look.text, "width": 2, "dash": "dot"},
            "hoverinfo": "skip",
        }
    ]


def _trail(trail: pd.DataFrame, look: Theme, scale: Scale, point: str) -> list[dict[str, Any]]:
    if trail.empty:
        return []
    ink = [look.fill("decode" if p == "decode" else "prefill") for p in trail["phase"]]
    n = len(trail)
    base = {"type": "scatter", "hoverinfo": "skip", **_points(trail, scale)}
    fading = [round(0.15 + 0.75 * (i + 1) / n, 2) for i in range(n)]
    now = trail.iloc[-1:]
    role = "decode" if str(now["phase"].iloc[0]) == "decode" else "prefill"
    return [
        {
            **base,
            "mode": "markers",
            "name": f"last {n} steps",
            "marker": {"color": ink, "size": 7, "opacity": fading, "line": {"width": 0}},
        },
        {
            **base,
            **_points(now, scale),
            "mode": "markers",
            "name": "live",
            "customdata": now["step"].tolist(),
            "marker": {
                "color": look.fill(role),
                "size": 16,
                "line": {"color": look.text, "width": 2},
            },
            "hoverinfo": "all",
            "hovertemplate": "step %{customdata}<br>%{x:.3g} · %{y:.3s}"
            f"<extra>{point}</extra>",
        },
    ]


def kv_cap(
    decode: Decode,
    ends: Ends,
    look: Theme,
    scale: Scale,
    notes: list[dict[str, Any]],
    flips: float = 0.65,
) -> list[dict[str, Any]]:
    """The intensity no batch gets past at this context."""
    cap = intensity_asymptote(decode.model, decode.context)
    if not ends.left < cap < ends.right:
        return []
    text = f"KV caps decode at {three(cap)} FLOP/byte"
    place = at(cap, ends.bottom, scale)
    right = math.log10(cap / ends.left) < flips * math.log10(ends.right / ends.left)
    side = {"xanchor": "left", "xshift": 5} if right else {"xanchor": "right", "xshift": -5}
    notes.append(note(look, text, **place, **side, yanchor="bottom", yshift=4))
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "KV cap",
            "x": [significant(cap * scale.x, 5)] * 2,
            "y": [ends.bottom * scale.y, ends.top * scale.y],
            "line": {"color": look.cached, "width": 2, "dash": "dash"},
            "hoverinfo": "skip",
        }
    ]
