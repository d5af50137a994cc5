"""Step time over batch on a modelled device: where computing catches up with reading."""

from __future__ import annotations

from typing import Any

import pandas as pd

from app.figures.crossover import batch_axis, dot, heading, line, ms_axis, regions
from app.figures.data import Figure
from app.theme import Theme, layout
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
    ]
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
