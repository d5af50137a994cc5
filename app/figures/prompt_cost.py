"""Prefill time over the length of a prompt: linear layers, and attention, which is quadratic."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from app.figures.crossover import LIGHTER, dot, heading, line, ms_axis
from app.figures.data import Figure
from app.theme import Theme, axis, layout, note, rgba

HEIGHT_PX = 242


def prompt_cost(curves: pd.DataFrame, now: tuple[float, float], look: Theme, batch: int) -> Figure:
    """curves: tokens, linear_s, attention_s (NaN where unknown), read_s, step_s over length.

    now: (tokens, t_step_s) of the chosen prompt; batch: how many such prompts the step has.
    """
    shape = layout(look, HEIGHT_PX, margin={"l": 60, "r": 8, "t": 24, "b": 40})
    ends = [float(curves["tokens"].iloc[i]) for i in (0, -1)]
    shape["xaxis"] = _length_axis(look, ends)
    data = _lines(curves, look)
    times_ms = [now[1] * 1e3] + [y for trace in data for y in trace["y"] if y is not None]
    shape["yaxis"] = ms_axis(look, times_ms, 3e4)
    prompts = "a prompt" if batch == 1 else f"{batch:,} prompts"
    shape["annotations"] = [heading(look, f"Prefill of {prompts} over its length")]
    shape["annotations"] += [*_equal(curves, look), *_names(data, look)]
    return {"data": [*data, dot(look, now[0], now[1] * 1e3, "prefill")], "layout": shape}


def _length_axis(look: Theme, ends: list[float]) -> dict[str, Any]:
    span = [math.log10(ends[0] * 0.9), math.log10(ends[1] * 1.1)]
    values = [2.0**i for i in range(40) if ends[0] <= 2.0**i <= ends[1]][::2]
    texts = [f"{v / 1024:g}k" if v >= 1024 else f"{v:g}" for v in values]
    ticks = {"tickvals": values, "ticktext": texts}
    return axis(look, "prompt, tokens (k = 1,024)", type="log", range=span, **LIGHTER, **ticks)


def _lines(curves: pd.DataFrame, look: Theme) -> list[dict[str, Any]]:
    xs = curves["tokens"].tolist()
    columns = {name: (curves[name] * 1e3).tolist() for name in curves.columns if name != "tokens"}
    hover = "<br>%{x:,} tokens: %{y:.3g} ms<extra></extra>"
    made = [
        line("weights and KV", xs, columns["read_s"], color=look.memory),
        line("math, linear", xs, columns["linear_s"], color=look.compute),
        line("math, attention", xs, columns["attention_s"], color=look.compute, dash="dot"),
        line("step", xs, columns["step_s"], color=look.text, width=2, dash="dash"),
    ]
    return [{**t, "hovertemplate": t["name"] + hover} for t in made]


def _equal(curves: pd.DataFrame, look: Theme) -> list[dict[str, Any]]:
    """From which length on attention costs as much as all linear layers."""
    over = curves[curves["attention_s"] >= curves["linear_s"]]
    if over.empty:
        return []
    row = over.iloc[0]
    # One part grows with the length and the other with its square: they meet at their ratio.
    at = float(row["tokens"] * row["linear_s"] / row["attention_s"])
    text = f"attention passes the linear layers at {at / 1e3:,.3g} thousand tokens"
    place = {"xref": "paper", "x": 0.01, "yref": "paper", "y": 0.98}
    return [note(look, text, 14, **place, xanchor="left", yanchor="top")]


# Where on its line a name stands (a share of the lengths), and on which side of it.
_NAMES = {
    "weights and KV": ("reading", 0.08, "bottom"),
    "math, linear": ("linear layers", 0.6, "top"),
    "math, attention": ("attention", 0.8, "top"),
}


def _names(data: list[dict[str, Any]], look: Theme) -> list[dict[str, Any]]:
    """Each line's name on it; none where the line is unknown."""
    return [_name(t, look) for t in data if t["name"] in _NAMES and t["y"][-1]]


def _name(trace: dict[str, Any], look: Theme) -> dict[str, Any]:
    text, share, side = _NAMES[trace["name"]]
    at = round(share * (len(trace["x"]) - 1))
    place = {"x": math.log10(trace["x"][at]), "y": math.log10(trace["y"][at])}
    back = {"yshift": 3 if side == "bottom" else -4, "bgcolor": rgba(look.background, 0.6)}
    return note(look, text, **place, xanchor="left", xshift=6, yanchor=side, **back)
