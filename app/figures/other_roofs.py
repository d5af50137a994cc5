"""Roofs beside a run's own: of another dtype, or of a device of the catalogue.

What is compared differs by dashes, never by a role's colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import numbers, significant
from app.figures.plane import BATCHES, Decode, Ends, Peaks, Scale, at
from app.theme import Theme, note, rgba
from app.units import duration, si
from engine.physics.roofline import decode_intensity

_MARKED = (1, 8, 64)  # batches that are named beside their marks
_APART = 0.3  # decades that such a name keeps from the words about the selected step


@dataclass(frozen=True, slots=True)
class Other:
    """Peaks beside the run's, their name, and decoding with the weights that they are for."""

    peaks: Peaks
    name: str
    decode: Decode | None
    is_device: bool

    def scale(self, normalised: bool) -> Scale:
        """Of normalised axes: over its own ridge and peak."""
        return Scale(1 / self.peaks.ridge, 1 / self.peaks.flops) if normalised else Scale()

    def floor_s(self, flops: float, intensity: float) -> float:
        """The least time that so much work of that intensity takes under these roofs, seconds."""
        return flops / self.peaks.roof(intensity)


def reach(
    others: Sequence[Other], own: Peaks | None, normalised: bool
) -> list[tuple[float, float]]:
    """Points that must lie within the axes, in the run's own FLOP/byte and FLOP/s."""
    if own is None:
        return []
    if not normalised:
        return [(o.peaks.ridge, o.peaks.flops) for o in others]
    lows = [o for o in others if o.decode]
    ladder = [(x / o.peaks.ridge, y / o.peaks.flops) for o in lows for x, y in _steps(o)[:1]]
    return [(x * own.ridge, y * own.flops) for x, y in ladder]


def _steps(other: Other) -> list[tuple[float, float]]:
    """Intensity and roof of a decode at each of the batches."""
    if other.decode is None:
        return []
    xs = [decode_intensity(other.decode.model, b, other.decode.context) for b in BATCHES]
    return [(x, other.peaks.roof(x)) for x in xs]


def draw(
    others: Sequence[Other],
    own: Peaks,
    trail: pd.DataFrame,
    ends: Ends,
    look: Theme,
    normalised: bool,
    notes: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Dashed roofs, and the selected step under a device's.

    Over ridge and peak all roofs are one line, which the run's own draws: there the batches of a
    decode along it tell them apart.
    """
    data: list[dict[str, Any]] = []
    for place, other in enumerate(others):
        if not normalised:
            data += _roofs(other, ends, look)
            notes.append(_name(other, own, ends, look))
        else:
            data += _ladder(other, place, trail, look, notes)
        if other.is_device:
            data += _same_step(other, trail, look, normalised, notes)
    return data


def _roofs(other: Other, ends: Ends, look: Theme) -> list[dict[str, Any]]:
    peaks = other.peaks
    xs = (ends.left, peaks.ridge, ends.right)
    x = [significant(v, 5) for v in xs]
    y = [significant(peaks.roof(v), 5) for v in xs]
    base = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    slope = {"color": look.memory, "width": 2, "dash": "dash"}
    flat = {"color": look.compute, "width": 2, "dash": "dash"}
    return [
        {**base, "name": f"{other.name} memory roof", "x": x[:2], "y": y[:2], "line": slope},
        {**base, "name": f"{other.name} compute roof", "x": x[1:], "y": y[1:], "line": flat},
    ]


def _name(other: Other, own: Peaks, ends: Ends, look: Theme) -> dict[str, Any]:
    """Over the end of its flat roof; under it where the run's own is above, whose name is there."""
    peaks = other.peaks
    rates = si(peaks.flops, "FLOP/s")
    if other.is_device:
        rates += f", {si(peaks.bandwidth, 'B/s')}"
    place = at(ends.right, peaks.flops, Scale())
    below = peaks.flops < own.flops
    side = {"yanchor": "top" if below else "bottom", "yshift": -3 if below else 3}
    text = f"{other.name} {rates} ({peaks.source})"
    return note(look, text, **place, **side, xanchor="right", bgcolor=rgba(look.background, 0.8))


def _ladder(
    other: Other, place: int, trail: pd.DataFrame, look: Theme, notes: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Open marks where decodes of each batch would be at best, over its own ridge and peak."""
    steps, scale = _steps(other), other.scale(normalised=True)
    if not steps:
        return []
    xs, ys = [x for x, _ in steps], [y for _, y in steps]
    selected = float(trail["intensity"].iloc[-1]) if len(trail) else 0.0
    away = {b: abs(math.log10(x / selected)) if selected > 0 else 1.0 for b, x in _marked(xs)}
    named = max(away, key=lambda b: away[b])
    for batch, x in _marked(xs):
        if away[batch] < _APART and batch != named:
            continue
        side = {"xanchor": "left", "xshift": 7, "yanchor": "top", "yshift": -2 - 14 * place}
        name = f"{other.name}, batch {batch}" if batch == named else str(batch)
        notes.append(note(look, name, **at(x, other.peaks.roof(x), scale), **side))
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{other.name} decode",
            "x": numbers(xs, 4, scale.x),
            "y": numbers(ys, 4, scale.y),
            "customdata": list(BATCHES),
            "marker": {
                "symbol": "diamond-open" if other.is_device else "square-open",
                "color": look.decode,
                "size": 9,
                "line": {"width": 2},
            },
            "hovertemplate": "batch %{customdata} at best<br>%{x:.3g} · %{y:.3s}"
            f"<extra>{other.name}</extra>",
        }
    ]


def _marked(xs: list[float]) -> list[tuple[int, float]]:
    """Batches with a name beside their mark, and their intensity."""
    return [(b, x) for b, x in zip(BATCHES, xs, strict=True) if b in _MARKED]


def _same_step(
    other: Other,
    trail: pd.DataFrame,
    look: Theme,
    normalised: bool,
    notes: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """The newest step of the trail where the device would have it at best."""
    if trail.empty:
        return []
    row = trail.iloc[-1]
    x, flops = float(row["intensity"]), float(row["achieved_flops"] * row["t_step_s"])
    if not x > 0 or not flops > 0:
        return []
    scale, y = other.scale(normalised), other.peaks.roof(x)
    text = f"<b>the same step: {duration(other.floor_s(flops, x))} or more</b>"
    side = {"xanchor": "left", "xshift": 12, "yanchor": "top", "yshift": -3}
    notes.append(note(look, text, **at(x, y, scale), **side, bgcolor=rgba(look.background, 0.8)))
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"the same step on {other.name}",
            "x": [significant(x * scale.x, 5)],
            "y": [significant(y * scale.y, 5)],
            "marker": {
                "symbol": "circle-open",
                "color": look.text,
                "size": 16,
                "line": {"width": 2},
            },
            "hoverinfo": "skip",
        }
    ]


def room(ends: Ends, own: Peaks | None, others: Sequence[Other], normalised: bool) -> Ends:
    """The axes' ends, further where the other roofs would lie outside of them."""
    points = reach(others, own, normalised)
    if not points:
        return ends
    left = min([ends.left, *(0.6 * x for x, _ in points)])
    right = max([ends.right, *(4 * x for x, _ in points)]) if not normalised else ends.right
    bottom = min([ends.bottom, *(0.4 * y for _, y in points)])
    top = max([ends.top, *(4 * y for _, y in points)]) if not normalised else ends.top
    return Ends(left, right, bottom, top)
