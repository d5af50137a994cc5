"""Step time over batch on a modelled device: where computing catches up with reading."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from app.figures.crossover import batch_axis, dot, heading, line, ms_axis, regions
from app.figures.data import Figure
from app.theme import Theme, layout, note, rgba
from engine.physics.roofline import Crossover

HEIGHT_PX = 242


def batch_cost(
    curves: pd.DataFrame, cross: Crossover, now: tuple[float, float], look: Theme, context: int
) -> Figure:
    """curves: batch, weights_s, memory_s, compute_s and step_s; now: (batch, t_step_s).

    weights_s is read by every step alone; memory_s has the KV cache too (NaN where unknown).
    """
    last = float(curves["batch"].iloc[-1])
    shape = layout(look, HEIGHT_PX, margin={"l": 60, "r": 8, "t": 24, "b": 40})
    shape["xaxis"] = batch_axis(look, "decode batch", last)
    data = _lines(curves, look)
    times_ms = [now[1] * 1e3] + [y for trace in data for y in trace["y"] if y is not None]
    shape["yaxis"] = ms_axis(look, times_ms)
    name = "B* with KV" if context else "B*"
    known = bool(curves["memory_s"].notna().any())
    shape["annotations"] = [
        heading(look, "What one more sequence costs: step time over batch"),
        *(regions(cross, look, last, name) if known else [_unknown(look)]),
        *_names(data, look),
    ]
    if cross.batch is not None and cross.batch <= last:
        shape["shapes"] = [_upright(cross.batch, look)]
    return {"data": [*data, dot(look, now[0], now[1] * 1e3)], "layout": shape}


def _lines(curves: pd.DataFrame, look: Theme) -> list[dict[str, Any]]:
    """Weights dotted, all reading and all computing solid, and the step where it takes longer."""
    xs = curves["batch"].tolist()
    columns = {name: (curves[name] * 1e3).tolist() for name in curves.columns if name != "batch"}
    out = [
        line("weights", xs, columns["weights_s"], color=look.memory, dash="dot", width=2),
        line("read", xs, columns["memory_s"], color=look.memory),
        line("math", xs, columns["compute_s"], color=look.compute),
    ]
    floor = curves[["weights_s", "memory_s", "compute_s"]].max(axis=1)
    if (curves["step_s"] > floor * 1.001).any():
        out.append(line("step", xs, columns["step_s"], color=look.text, width=2, dash="dash"))
    return out


def _unknown(look: Theme) -> dict[str, Any]:
    text = "no crossover is known: nobody says what the KV cache of a token takes"
    place = {"xref": "x", "x": math.log10(0.9), "yref": "paper", "y": 0.99}
    return note(look, text, 14, **place, xanchor="left", yanchor="top")


def _upright(batch: float, look: Theme) -> dict[str, Any]:
    """Where computing overtakes."""
    line = {"color": look.muted, "width": 1.5, "dash": "dot"}
    ends = {"x0": batch, "x1": batch, "y0": 0, "y1": 1}
    return {"type": "line", "xref": "x", "yref": "paper", **ends, "line": line}


# Where on its line a name stands (a share of the batches), and on which side of it.
_NAMES = {
    "weights": ("weights alone", 0.2, {"xanchor": "left", "yanchor": "top"}),
    "read": ("reading", 0.35, {"xanchor": "left", "yanchor": "bottom"}),
    "math": ("math", 0.62, {"xanchor": "left", "yanchor": "top"}),
}


def _names(data: list[dict[str, Any]], look: Theme) -> list[dict[str, Any]]:
    """Each line's name on it; weights only where KV parts them from all reading."""
    lines = {t["name"]: t for t in data if t["name"] in _NAMES and t["y"][-1]}
    if "read" in lines and lines["read"]["y"][-1] < 1.3 * lines["weights"]["y"][-1]:
        lines.pop("weights")
    return [_name(trace, look) for trace in lines.values()]


def _name(trace: dict[str, Any], look: Theme) -> dict[str, Any]:
    text, share, side = _NAMES[trace["name"]]
    at = round(share * (len(trace["x"]) - 1))
    place = {"x": math.log10(trace["x"][at]), "y": math.log10(trace["y"][at])}
    shift = 3 if side["yanchor"] == "bottom" else -3
    return note(look, text, **place, **side, yshift=shift, bgcolor=rgba(look.background, 0.6))
