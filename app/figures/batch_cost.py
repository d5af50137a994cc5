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
    shape["annotations"] = [
        heading(look, "What one more sequence costs: step time over batch"),
        *regions(cross, look, last, name),
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
    floor = curves[["memory_s", "compute_s"]].max(axis=1)
    if (curves["step_s"] > floor * 1.001).any():
        out.append(line("step", xs, columns["step_s"], color=look.text, width=2, dash="dash"))
    return out


def _upright(batch: float, look: Theme) -> dict[str, Any]:
    """Where computing overtakes."""
    line = {"color": look.muted, "width": 1.5, "dash": "dot"}
    ends = {"x0": batch, "x1": batch, "y0": 0, "y1": 1}
    return {"type": "line", "xref": "x", "yref": "paper", **ends, "line": line}


_NAMES = {"weights": "weights alone", "read": "reading", "math": "math"}


def _names(data: list[dict[str, Any]], look: Theme) -> list[dict[str, Any]]:
    """Each line's name near its end; weights only where KV parts them from all reading."""
    ends = {t["name"]: (t["x"][-3], t["y"][-3]) for t in data if t["y"][-3]}
    if "read" in ends and ends["read"][1] < 1.3 * ends["weights"][1]:
        ends.pop("weights")
    return [
        note(
            look,
            _NAMES[name],
            x=math.log10(x),
            y=math.log10(y),
            yanchor="bottom",
            yshift=3,
            bgcolor=rgba(look.background, 0.6),
        )
        for name, (x, y) in ends.items()
        if name in _NAMES
    ]
