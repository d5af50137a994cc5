"""The KV cache over the window: used, cached, free; evictions, preemptions, and what they cost."""

from __future__ import annotations

from typing import Any

import pandas as pd

from app.figures.data import Figure, nice_ceiling, numbers, places
from app.figures.kv_map import PALE
from app.theme import Theme, axis, layout, mixed, note
from app.units import count

HEIGHT_PX = 216
_AREA = [0.54, 1.0]
_EVICTED = [0.27, 0.41]
_AGAIN = [0.0, 0.15]


def kv_series(rows: pd.DataFrame, block_size: int | None, span_s: float, look: Theme) -> Figure:
    """rows: from `queries.kv_cache.series`. Unknown counts leave gaps, never zeros."""
    top, offered = _top(rows)
    evicted, again = _ceiling(rows["evictions"], 4.0), _ceiling(rows["recomputed_tokens"], 10.0)
    data = _areas(rows, block_size, look)
    data.append(_bars(rows, "evictions", "evicted", "cached", "y2", look))
    data.append(_bars(rows, "recomputed_tokens", "tokens computed again", "lost", "y3", look))
    data.append(_preempted(rows, again, look))
    shape = layout(
        look, HEIGHT_PX, margin={"l": 64, "r": 8, "t": 4, "b": 38}, hovermode="x", barmode="overlay"
    )
    title = "seconds before the newest step shown"
    shape["xaxis"] = axis(look, title, range=[-span_s, 0], anchor="y3", nticks=8)
    plain: dict[str, Any] = {"showline": False, "ticks": ""}
    shape["yaxis"] = axis(look, "blocks", domain=_AREA, range=[0, top], nticks=4, **plain)
    for name, domain, most in (("yaxis2", _EVICTED, evicted), ("yaxis3", _AGAIN, again)):
        ends: dict[str, Any] = {"range": [0, most * 1.1], "tickvals": [0, most], "fixedrange": True}
        shape[name] = axis(look, domain=domain, **ends, **plain)
    shape["annotations"] = _captions(rows, look)
    if offered is not None:
        shape["annotations"].append(_beyond(offered, look))
    return {"data": data, "layout": shape}


def _top(rows: pd.DataFrame) -> tuple[float, int | None]:
    """Where the axis of blocks ends; and what is offered, where that is far beyond it."""
    total, held = rows["total"].max(), (rows["used"] + rows["cached"].fillna(0)).max()
    if pd.isna(total) or not total:
        return 1.0, None
    if pd.isna(held) or held > total / 4:
        return nice_ceiling(float(total) * 1.02), None
    return nice_ceiling(max(float(held) * 1.4, 8.0)), int(total)


def _beyond(offered: int, look: Theme) -> dict[str, Any]:
    place = {"xref": "paper", "x": 0.996, "xanchor": "right", "yref": "paper", "y": 0.995}
    made = note(look, f"▲ {count(offered)} offered", **place, yanchor="top")
    return made | {"font": made["font"] | {"color": look.muted}}


def _ceiling(values: pd.Series[Any], least: float) -> float:
    most = values.max()
    return nice_ceiling(max(float(most), least) if pd.notna(most) else least)


def _areas(rows: pd.DataFrame, block_size: int | None, look: Theme) -> list[dict[str, Any]]:
    """Cumulative, the lowest drawn last: filled part of used blocks, their room, cached; total."""
    used = rows["used"]
    top = used + rows["cached"].fillna(0)
    pale = mixed(look.decode, look.background, PALE)
    made = [_area(rows, top, "cached", look.cached, rows["cached"])]
    if block_size and rows["room_tokens"].notna().any():
        full = used - (rows["room_tokens"] / block_size).fillna(0)
        made.append(_area(rows, used, "room in last blocks", pale, used - full))
        made.append(_area(rows, full, "used", look.decode, used))
    else:
        made.append(_area(rows, used, "used", look.decode, used))
    line = _steps(rows, rows["total"], "offered")
    ink = {"color": look.muted, "width": 1.5, "dash": "dot", "shape": "hv"}
    return [*made, line | {"line": ink, "hovertemplate": "%{y} offered<extra></extra>"}]


def _steps(rows: pd.DataFrame, values: pd.Series[Any], name: str) -> dict[str, Any]:
    """Each value holds until the next begins; the last one to its own end."""
    ends = rows["end_s"].tail(1)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": places([*rows["x_s"], *ends], 3),
        "y": numbers([*values, *values.tail(1)], 6),
    }


def _area(
    rows: pd.DataFrame, top: pd.Series[Any], name: str, colour: str, own: pd.Series[Any]
) -> dict[str, Any]:
    return _steps(rows, top, name) | {
        "line": {"width": 0, "shape": "hv"},
        "fill": "tozeroy",
        "fillcolor": colour,
        "text": [count(v) if pd.notna(v) else "not reported" for v in [*own, *own.tail(1)]],
        "hovertemplate": f"%{{text}} {name}<extra></extra>",
    }


def _bars(
    rows: pd.DataFrame, column: str, name: str, role: str, yaxis: str, look: Theme
) -> dict[str, Any]:
    """One bar for each bin in which there was any."""
    mine = rows[rows[column].fillna(0) > 0]
    wide = (mine["end_s"] - mine["x_s"]).clip(lower=0.03)
    return {
        "type": "bar",
        "name": name,
        "yaxis": yaxis,
        "x": places(mine["x_s"] + wide / 2, 3),
        "width": places(wide, 3),
        "y": numbers(mine[column], 6),
        "marker": {"color": look.fill(role), "line": {"width": 0}},
        "hovertemplate": f"%{{y}} {name}<extra></extra>",
    }


def _preempted(rows: pd.DataFrame, top: float, look: Theme) -> dict[str, Any]:
    """Where sequences were pushed out, above what it cost later."""
    mine = rows[rows["preemptions"].fillna(0) > 0]
    shape = {"color": look.lost, "symbol": "triangle-down", "size": 10}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "preempted",
        "yaxis": "y3",
        "x": places(mine["x_s"], 3),
        "y": [top] * len(mine),
        "cliponaxis": False,
        "customdata": mine["preemptions"].astype(int).tolist(),
        "marker": shape | {"line": {"width": 1, "color": look.background}},
        "hovertemplate": "%{customdata} preempted<extra></extra>",
    }


_SAYS = (
    ("evictions", "blocks evicted", "no block evicted", 0.475),
    ("recomputed_tokens", "tokens computed again, ▼ preempted", "no token computed again", 0.205),
)


def _captions(rows: pd.DataFrame, look: Theme) -> list[dict[str, Any]]:
    """What each strip shows, or that there was none of it, or that nobody said."""
    made = []
    for column, some, none, y in _SAYS:
        text = some if rows[column].fillna(0).any() else none
        if rows[column].isna().all():
            text = f"{some}: not reported"
        place = {
            "xref": "paper",
            "x": 0.004,
            "xanchor": "left",
            "yref": "paper",
            "y": y,
            "yanchor": "middle",
        }
        label = note(look, text, **place)
        made.append(label | {"font": label["font"] | {"color": look.muted}})
    return made
