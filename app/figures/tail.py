"""Throughput beside the tail: tokens/s looks healthy in seconds in which somebody waited."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from app.figures import marks as events
from app.figures.data import Figure, nice_ceiling, numbers, places
from app.theme import Theme, axis, layout, note

HEIGHT_PX = 372
_RATE_DOMAIN, _GAPS_DOMAIN = [0.56, 1.0], [0.0, 0.44]


def tail(
    seconds: pd.DataFrame,
    marks: pd.DataFrame,
    span_s: float,
    look: Theme,
    end: str = "the newest step",
) -> Figure:
    """seconds: rows of `queries.interference.tail`; marks: of `queries.live.marks`.

    end: what stands at the axis' zero.
    """
    top = nice_ceiling(max(float(seconds["tokens"].max()), 1.0) * 1.15)
    low, high = _ends(seconds)
    data = [_rate(seconds, look), _gaps("worst gap", seconds, "worst_s", "prefill", look)]
    data.append(_gaps("median gap", seconds, "median_s", "decode", look))
    data += events.lines(look, marks, 0, top)
    data += events.lines(look, marks, low, high, yaxis="y2")
    shape = layout(look, HEIGHT_PX, margin={"l": 64, "r": 10, "t": 24, "b": 40})
    quiet = {"showline": False, "ticks": ""}
    ends = [float(np.log10(low)), float(np.log10(high))]
    x = axis(look, f"seconds before {end}", range=[-span_s, 0], anchor="y2", nticks=8)
    rate = {"domain": _RATE_DOMAIN, "range": [0, top], "nticks": 5}
    gap = {"domain": _GAPS_DOMAIN, "type": "log", "range": ends, "dtick": 1}
    shape |= {
        "xaxis": x,
        "yaxis": axis(look, "tokens/s", **rate, **quiet),
        "yaxis2": axis(look, "gap, ms (log)", **gap, **quiet),
    }
    shape["annotations"] = events.labels(look, marks, span_s, yref="paper", y=1.0)
    shape["annotations"] += _names(look)
    return {"data": data, "layout": shape}


def _ends(seconds: pd.DataFrame) -> tuple[float, float]:
    """Whole decades around all gaps, ms."""
    times = pd.concat([seconds["median_s"], seconds["worst_s"]]).dropna() * 1e3
    if times.empty:
        return 1.0, 1000.0
    low = 10.0 ** np.floor(np.log10(float(times.min()) * 0.9))
    return float(low), float(max(10.0 ** np.ceil(np.log10(float(times.max()) * 1.1)), low * 10))


def _rate(seconds: pd.DataFrame, look: Theme) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": "tokens/s",
        "x": places(seconds["x_s"], 2),
        "y": seconds["tokens"].tolist(),
        "width": 0.9,
        "marker": {"color": look.decode, "line": {"width": 0}},
        "hovertemplate": "%{y} tokens/s<extra></extra>",
    }


def _gaps(name: str, seconds: pd.DataFrame, column: str, role: str, look: Theme) -> dict[str, Any]:
    worst = column == "worst_s"
    marker: dict[str, Any] = {"size": 8 if worst else 5, "color": look.fill(role)}
    if worst:
        marker["line"] = {"color": look.text, "width": 1}
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": places(seconds["x_s"], 2),
        "y": numbers(seconds[column] * 1e3),
        "yaxis": "y2",
        "connectgaps": False,
        "line": {"color": look.fill(role), "width": 2},
        "marker": marker,
        "hovertemplate": f"{name} %{{y}} ms<extra></extra>",
    }


def _names(look: Theme) -> list[dict[str, Any]]:
    place = {"xref": "paper", "x": 0, "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    words = "worst gap of each second, with its median gap below"
    text = note(look, words, y=_GAPS_DOMAIN[1] + 0.01, **place)
    return [{**text, "font": {**text["font"], "color": look.muted}}]
