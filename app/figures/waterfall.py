"""Requests one below the other: queue, each prefill chunk, decode, and what was lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import Figure, known, nice_ceiling, places
from app.theme import Theme, axis, layout
from app.units import count, duration, three

HEIGHT_PX = 474
ROWS = 26
PHASES = {"prefill": "prefill", "decode": "decode", "recompute": "lost"}


@dataclass(frozen=True, slots=True)
class Axis:
    """By the clock (seconds before the window's end), or each request from its own arrival."""

    span_s: float
    from_arrival: bool = False


def waterfall(
    requests: pd.DataFrame,
    segments: pd.DataFrame,
    shown: Axis,
    opened: int | None,
    look: Theme,
) -> Figure:
    """requests: of `queries.requests.seen`, in order, with `slowdown`; segments: theirs."""
    rows = requests.assign(row=range(len(requests)))
    rows["zero"] = rows["arrived_s"] if shown.from_arrival else 0.0
    rows["end_s"] = rows["finished_s"].fillna(0.0).clip(upper=0.0)
    at = pd.Index(rows["request_id"]).get_indexer(segments["request_id"])
    parts = segments.assign(row=at, zero=rows["zero"].to_numpy()[at])
    data = [_life(rows, look), _queue(rows, look), *(_phase(parts, p, look) for p in PHASES)]
    shape = layout(look, HEIGHT_PX, barmode="overlay", margin=_MARGIN, meta={"picks": True})
    shape["xaxis"] = _time_axis(rows, shown, look)
    shape["yaxis"] = _row_axis(rows, opened, look)
    if opened in set(rows["request_id"]):
        shape["shapes"] = [_band(int(rows[rows["request_id"] == opened]["row"].iloc[0]), look)]
    return {"data": data, "layout": shape}


_MARGIN = {"l": 104, "r": 10, "t": 6, "b": 40}


def _time_axis(rows: pd.DataFrame, shown: Axis, look: Theme) -> dict[str, Any]:
    if not shown.from_arrival:
        title = "seconds before the newest step shown"
        first = nice_ceiling(-float(rows["arrived_s"].min())) if len(rows) else shown.span_s
        return axis(look, title, range=[-min(first, shown.span_s), 0], nticks=8)
    longest = float((rows["end_s"] - rows["zero"]).max()) if len(rows) else 1.0
    return axis(look, "seconds since its arrival", range=[0, nice_ceiling(longest)], nticks=8)


def _row_axis(rows: pd.DataFrame, opened: int | None, look: Theme) -> dict[str, Any]:
    each = zip(rows["request_id"].tolist(), rows["slowdown"].tolist(), strict=True)
    names = [_name(request, slowdown, request == opened) for request, slowdown in each]
    ends = [max(len(rows), 10) - 0.4, -0.6]
    plain: dict[str, Any] = {"showgrid": False, "showline": False, "ticks": "", "fixedrange": True}
    return axis(look, tickvals=rows["row"].tolist(), ticktext=names, range=ends, **plain)


def _name(request: int, slowdown: float | None, opened: bool) -> str:
    times = known(slowdown)
    text = f"r-{request}" + (f" × {three(times)}" if times is not None else "")
    return f"<b>{text}</b>" if opened else text


def _band(row: int, look: Theme) -> dict[str, Any]:
    ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": row - 0.5, "y1": row + 0.5}
    return {"type": "rect", **ends, "fillcolor": look.grid, "line": {"width": 0}, "layer": "below"}


def _life(rows: pd.DataFrame, look: Theme) -> dict[str, Any]:
    """A thin line through each life: where nothing lies on it, the request got nothing."""
    return _bar(rows, "life", rows["arrived_s"], rows["end_s"], 0.08) | {
        "marker": {"color": look.muted, "line": {"width": 0}},
        "text": [f"r-{r}" for r in rows["request_id"]],
    }


def _bar(rows: pd.DataFrame, name: str, start: Any, end: Any, wide: float) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": places(start - rows["zero"], 4),
        "x": places(end - start, 4),
        "y": rows["row"].tolist(),
        "width": wide,
        "customdata": rows["request_id"].tolist(),
        "textposition": "none",
        "hovertemplate": f"%{{text}}<extra>{name}</extra>",
    }


def _queue(rows: pd.DataFrame, look: Theme) -> dict[str, Any]:
    """Outline only: nothing ran for it yet."""
    admitted = rows["admitted_s"].fillna(rows["end_s"]).clip(upper=0.0)
    waited = admitted - rows["arrived_s"]
    ids = zip(rows["request_id"], waited, strict=True)
    outline = {"color": look.background, "line": {"color": look.muted, "width": 1}}
    return _bar(rows, "queue", rows["arrived_s"], admitted, 0.6) | {
        "marker": outline,
        "text": [f"r-{r} waited {duration(s)}" for r, s in ids],
    }


def _phase(parts: pd.DataFrame, phase: str, look: Theme) -> dict[str, Any]:
    mine = parts[parts["phase"] == phase]
    edge = {"color": look.background, "width": 1 if phase != "decode" else 0}
    took = mine["end_s"] - mine["start_s"]
    tells = zip(mine["request_id"], mine["tokens"], took, strict=True)
    return _bar(mine, phase, mine["start_s"], mine["end_s"], 0.78) | {
        "marker": {"color": look.fill(PHASES[phase]), "line": edge},
        "text": [f"r-{r}: {count(n)} tokens in {duration(s)}" for r, n, s in tells],
    }
