"""The roofline: where steps are, where they could be. Log-log, absolute or over ridge and peak."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import Figure, numbers, significant
from app.theme import Theme, axis, layout, note, rgba
from app.units import count, si, three
from engine.physics.roofline import (
    DecodeModel,
    attainable_flops,
    crossover_batch,
    decode_intensity,
    intensity_asymptote,
    ridge_intensity,
)

HEIGHT_PX = 500
BATCHES = (1, 2, 4, 8, 16, 32, 64)
LEFT = 0.5
_PLOT_PX = (676, 414)  # inside of the figure at 1280 px


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak FLOP/s and bytes/s of a run, both known, and where they come from."""

    flops: float
    bandwidth: float
    source: str

    @property
    def ridge(self) -> float:
        return ridge_intensity(self.flops, self.bandwidth)

    def roof(self, intensity: float) -> float:
        return attainable_flops(intensity, self.flops, self.bandwidth)


@dataclass(frozen=True, slots=True)
class Decode:
    """What a decode step costs at the current context, tokens."""

    model: DecodeModel
    context: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Units of both axes: FLOP/byte and FLOP/s, or shares of ridge and peak."""

    x: float = 1.0
    y: float = 1.0


def roofline(
    cloud: pd.DataFrame,
    trail: pd.DataFrame,
    peaks: Peaks | None,
    decode: Decode | None,
    look: Theme,
    normalised: bool = False,
) -> Figure:
    """cloud and trail: rows of `queries.roofline.cloud` and `.trail` (newest last)."""
    scale = Scale(1 / peaks.ridge, 1 / peaks.flops) if peaks and normalised else Scale()
    ends = _ends(cloud, peaks)
    data = _clouds(cloud, look, scale)
    notes: list[dict[str, Any]] = []
    if peaks:
        data += _roofs(peaks, ends, look, scale)
        notes += _roof_notes(peaks, ends, look, scale)
        data += _above(cloud, peaks, look, scale, notes)
        data += _drop(trail, peaks, look, scale, notes)
    if decode:
        data += _kv_cap(decode, ends, look, scale, notes)
        data.append({"type": "scatter", "x": [None], "y": [None], "xaxis": "x2", "name": "batch"})
    data += _trail(trail, look, scale)
    shape = layout(look, HEIGHT_PX, margin={"l": 66, "r": 10, "t": 44, "b": 42})
    shape |= _axes(ends, peaks, decode, look, scale, normalised)
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


@dataclass(frozen=True, slots=True)
class Ends:
    """Ends of both axes in FLOP/byte and FLOP/s."""

    left: float
    right: float
    bottom: float
    top: float


def _ends(cloud: pd.DataFrame, peaks: Peaks | None) -> Ends:
    """From the peaks where known, so that nothing moves; further only where a step lies outside."""
    slowest = float(cloud["achieved_flops"].min()) if len(cloud) else math.inf
    if peaks is None:
        fastest = float(cloud["achieved_flops"].max()) if len(cloud) else 1e12
        return Ends(LEFT, 256.0, 10 ** math.floor(math.log10(min(slowest, fastest))), fastest * 3)
    bottom = peaks.roof(LEFT) * 0.25
    while slowest < bottom:
        bottom /= 10
    right, furthest = 4 * max(peaks.ridge, 64.0), float(cloud["intensity"].max())
    while furthest > right * 0.98:
        right *= 2
    return Ends(LEFT, right, bottom, peaks.flops * 2.2)


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


def _roofs(peaks: Peaks, ends: Ends, look: Theme, scale: Scale) -> list[dict[str, Any]]:
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


def _at(x: float, y: float, scale: Scale) -> dict[str, float]:
    """Annotations on log axes are placed by logarithm."""
    return {"x": math.log10(x * scale.x), "y": math.log10(y * scale.y)}


def _roof_notes(peaks: Peaks, ends: Ends, look: Theme, scale: Scale) -> list[dict[str, Any]]:
    top = note(
        look,
        f"compute roof {si(peaks.flops, 'FLOP/s')} ({peaks.source})",
        **_at(ends.right, peaks.flops, scale),
        xanchor="right",
        yanchor="bottom",
        bgcolor=look.background,
    )
    x = math.sqrt(ends.left * peaks.ridge)
    slope = note(
        look,
        f"memory roof {si(peaks.bandwidth, 'B/s')} ({peaks.source})",
        **_at(x, peaks.roof(x), scale),
        textangle=-_slope_degrees(ends),
        yanchor="bottom",
        xanchor="center",
        yshift=4,
    )
    ridge = note(
        look,
        f"ridge {three(peaks.ridge)}",
        **_at(peaks.ridge, peaks.flops, scale),
        yanchor="bottom",
        xanchor="center",
    )
    return [top, slope, ridge]


def _slope_degrees(ends: Ends) -> float:
    """How steep the memory roof looks: a decade of each axis at the usual width."""
    across = _PLOT_PX[0] / math.log10(ends.right / ends.left)
    up = _PLOT_PX[1] / math.log10(ends.top / ends.bottom)
    return round(math.degrees(math.atan2(up, across)), 1)


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
    place = _at(float(worst["intensity"]), float(worst["achieved_flops"]), scale)
    notes.append(note(look, text, 15, **place, xanchor="left", yanchor="bottom", xshift=10))
    ring = {"color": "rgba(0,0,0,0)", "size": 14, "line": {"color": look.text, "width": 2}}
    base = {"type": "scatter", "mode": "markers", "name": "above the roof", "hoverinfo": "skip"}
    return [{**base, **_points(rows, scale), "marker": ring}]


def _drop(
    trail: pd.DataFrame, peaks: Peaks, look: Theme, scale: Scale, notes: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """A line from the live point to the roof over it, with the share reached."""
    if trail.empty:
        return []
    x, y = float(trail["intensity"].iloc[-1]), float(trail["achieved_flops"].iloc[-1])
    if x <= 0 or y <= 0:
        return []
    roof = peaks.roof(x)
    place = _at(x, math.sqrt(y * roof), scale)
    share = f"<b>{three(100 * y / roof)}% of roof</b>"
    side = {"xanchor": "left", "xshift": 12, "yshift": -16, "bgcolor": rgba(look.background, 0.8)}
    notes.append(note(look, share, 18, **place, **side))
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


def _trail(trail: pd.DataFrame, look: Theme, scale: Scale) -> list[dict[str, Any]]:
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
            "hovertemplate": "step %{customdata}<br>%{x:.3g} · %{y:.3s}<extra>live</extra>",
        },
    ]


def _kv_cap(
    decode: Decode, ends: Ends, look: Theme, scale: Scale, notes: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The intensity no batch gets past at this context."""
    cap = intensity_asymptote(decode.model, decode.context)
    if not ends.left < cap < ends.right:
        return []
    text = f"KV caps decode at {three(cap)} FLOP/byte"
    place = _at(cap, ends.bottom, scale)
    right = math.log10(cap / ends.left) < 0.65 * math.log10(ends.right / ends.left)
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


def batch_ticks(decode: Decode, peaks: Peaks | None, ends: Ends) -> list[tuple[float, str]]:
    """(intensity, text) of the top axis: decode batches at the current context, and B*."""
    ticks = [(decode_intensity(decode.model, b, decode.context), str(b)) for b in BATCHES]
    kept: list[tuple[float, str]] = []
    if peaks:
        star = crossover_batch(decode.model, peaks.flops, peaks.bandwidth)
        at = decode_intensity(decode.model, star, decode.context)
        kept.append((at, f"<b>B* {three(star)}</b>"))
    for x, text in ticks:
        apart = all(abs(math.log10(x / k)) > (0.055 if len(t) < 4 else 0.13) for k, t in kept)
        if ends.left < x < ends.right and apart:
            kept.append((x, text))
    return sorted(kept)


def _ticks(ends: Ends, scale: Scale) -> dict[str, Any]:
    """1, 2 and 5 of each decade, all in one size."""
    every = [m * 10.0**p for p in range(-4, 6) for m in (1, 2, 5)]
    low, high = ends.left * scale.x, ends.right * scale.x
    shown = [v for v in every if low * 0.999 <= v <= high * 1.001]
    return {"tickvals": shown, "ticktext": [f"{v:g}" for v in shown]}


def _axes(
    ends: Ends,
    peaks: Peaks | None,
    decode: Decode | None,
    look: Theme,
    scale: Scale,
    normalised: bool,
) -> dict[str, Any]:
    x_title = "intensity / ridge" if normalised and peaks else "arithmetic intensity, FLOP/byte"
    y_title = (
        "share of peak FLOP/s" if normalised and peaks else "achieved FLOP/s of the whole step"
    )
    span = [math.log10(ends.left * scale.x), math.log10(ends.right * scale.x)]
    height = [math.log10(ends.bottom * scale.y), math.log10(ends.top * scale.y)]
    shape = {
        "xaxis": axis(look, x_title, type="log", range=span, **_ticks(ends, scale)),
        "yaxis": axis(look, y_title, type="log", range=height, exponentformat="SI", dtick=1),
    }
    if decode:
        ticks = batch_ticks(decode, peaks, ends)
        shape["xaxis2"] = axis(
            look,
            f"decode batch at a context of {count(round(decode.context))} tokens",
            type="log",
            range=span,
            matches="x",
            overlaying="x",
            side="top",
            tickvals=[significant(x * scale.x, 5) for x, _ in ticks],
            ticktext=[t for _, t in ticks],
            showgrid=False,
        )
    return shape
