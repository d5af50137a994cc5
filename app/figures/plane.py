"""The plane of the roofline: peaks, scales, the ends of both axes and their ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import significant
from app.theme import Theme, axis
from app.units import count, three, tick
from engine.physics.roofline import (
    DecodeModel,
    attainable_flops,
    crossover_batch,
    decode_intensity,
    ridge_intensity,
)

BATCHES = (1, 2, 4, 8, 16, 32, 64)
LEFT = 0.5
PLOT_PX = (676, 362)  # inside of the figure at 1280 px


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


@dataclass(frozen=True, slots=True)
class Ends:
    """Ends of both axes in FLOP/byte and FLOP/s."""

    left: float
    right: float
    bottom: float
    top: float


def ends_of(cloud: pd.DataFrame, peaks: Peaks | None) -> Ends:
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
    return Ends(LEFT, right, bottom, peaks.flops * 3)


def at(x: float, y: float, scale: Scale) -> dict[str, float]:
    """Annotations on log axes are placed by logarithm."""
    return {"x": math.log10(x * scale.x), "y": math.log10(y * scale.y)}


def slope_degrees(ends: Ends, plot_px: tuple[int, int] = PLOT_PX) -> float:
    """How steep the memory roof looks: a decade of each axis at the usual width."""
    across = plot_px[0] / math.log10(ends.right / ends.left)
    up = plot_px[1] / math.log10(ends.top / ends.bottom)
    return round(math.degrees(math.atan2(up, across)), 1)


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


def _decades(height: list[float]) -> dict[str, Any]:
    """Powers of ten with prefixes: plotly's own end at T."""
    values = [10.0**p for p in range(math.ceil(height[0]), math.floor(height[1]) + 1)]
    return {"tickvals": values, "ticktext": [tick(v, "") for v in values]}


def axes(
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
        "yaxis": axis(look, y_title, type="log", range=height, **_decades(height)),
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
