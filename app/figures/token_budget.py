"""What a token budget trades: the worst gap between two tokens against the time to the first one.

Both over the budget (log2), as replays of the recorded requests predict them; what was measured
stands beside it. Without a budget whole prompts run in one step: the place at the right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from app.figures.data import Figure, numbers
from app.figures.gaps import gap_ticks
from app.theme import CALLOUT_PX, Theme, axis, layout, note, rgba
from app.units import count, duration

HEIGHT_PX = 372
_ABOVE, _BELOW = [0.55, 1.0], [0.0, 0.43]
_ITL = ("worst_s", "worst gap", "prefill")
_TTFTS = (("ttft_worst_s", "worst TTFT", "prefill"), ("ttft_s", "median TTFT", "decode"))


@dataclass(frozen=True, slots=True)
class Measured:
    """What was recorded. budget: of all its steps, None: they had none. mixed: neither held for
    all of them, so that it has a place of its own."""

    name: str
    budget: int | None
    mixed: bool
    worst_s: float | None
    ttft_s: float | None
    ttft_worst_s: float | None


def token_budget(
    rows: pd.DataFrame,
    measured: Measured,
    chosen: int,
    targets: tuple[float | None, float | None],
    look: Theme,
) -> Figure:
    """rows: budget (NULL: none), and worst_s, ttft_s, ttft_worst_s, each with _low and _high.

    targets: of the worst gap and of the TTFT, s; None: there is none.
    """
    rows = rows.assign(x=[_place(b, rows) for b in rows["budget"]])
    data = _curve(rows, *_ITL, "y", look)
    for column, name, role in _TTFTS:
        data += _curve(rows, column, name, role, "y2", look)
    data += _marks(measured, rows, look)
    shape = layout(look, HEIGHT_PX, margin={"l": 64, "r": 128, "t": 8, "b": 40})
    shape |= _axes(rows, measured, targets, look)
    shape["shapes"] = [_chosen_line(chosen, look), *_target_lines(targets, look)]
    names = _names(rows, look)
    shape["annotations"] = [
        *names,
        *_callout(rows, chosen, look),
        *_target_names(targets, names, shape, look),
    ]
    return {"data": data, "layout": shape}


def _place(budget: Any, rows: pd.DataFrame) -> float:
    """log2 of the budget; without one a place of its own, right of the largest."""
    return float(np.log2(rows["budget"].max()) + 1 if pd.isna(budget) else np.log2(budget))


def _measured_at(measured: Measured, rows: pd.DataFrame) -> float:
    """On the axis of the budgets; what ran with no one of them stands right of all places."""
    return float(rows["x"].max()) + 1 if measured.mixed else _place(measured.budget, rows)


def _curve(
    rows: pd.DataFrame, column: str, name: str, role: str, y: str, look: Theme
) -> list[dict[str, Any]]:
    """The band of all replays, and their medians; the place without a budget is not joined."""
    joined = rows[rows["budget"].notna()].sort_values("x")
    colour = look.fill(role)
    tells = [
        f"{_name(b)}: {name} {duration(v)} ({duration(low)} – {duration(high)}), predicted"
        for b, v, low, high in rows[
            ["budget", column, f"{column}_low", f"{column}_high"]
        ].itertuples(index=False)
    ]
    band = {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name}, range",
        "x": [*joined["x"], *joined["x"][::-1]],
        "y": numbers([*joined[f"{column}_low"], *joined[f"{column}_high"][::-1]], scale=1e3),
        "yaxis": y,
        "fill": "toself",
        "fillcolor": rgba(colour, 0.22),
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name}, line",
        "x": joined["x"].tolist(),
        "y": numbers(joined[column], scale=1e3),
        "yaxis": y,
        "line": {"color": colour, "width": 2},
        "hoverinfo": "skip",
    }
    return [band, line, _dots(rows, column, name, colour, y, tells)]


def _dots(
    rows: pd.DataFrame, column: str, name: str, colour: str, y: str, tells: list[str]
) -> dict[str, Any]:
    low, high = rows[column] - rows[f"{column}_low"], rows[f"{column}_high"] - rows[column]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": rows["x"].tolist(),
        "y": numbers(rows[column], scale=1e3),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": numbers(high, scale=1e3),
            "arrayminus": numbers(low, scale=1e3),
            "color": colour,
            "thickness": 1.5,
            "width": 4,
        },
        "yaxis": y,
        "text": tells,
        "marker": {"color": colour, "size": 9},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _name(budget: Any) -> str:
    return "no budget" if pd.isna(budget) else f"{count(int(budget))} tokens a step"


def _marks(measured: Measured, rows: pd.DataFrame, look: Theme) -> list[dict[str, Any]]:
    """Open diamonds: what was recorded, above and below."""
    x = _measured_at(measured, rows)
    ink = {"color": look.text, "size": 13, "symbol": "diamond-open", "line": {"width": 2.5}}
    found = []
    for y, values in (
        ("y", {"worst gap": measured.worst_s}),
        ("y2", {"worst TTFT": measured.ttft_worst_s, "median TTFT": measured.ttft_s}),
    ):
        known = {name: value for name, value in values.items() if value}
        found.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"measured, {y}",
                "x": [x] * len(known),
                "y": numbers(known.values(), scale=1e3),
                "yaxis": y,
                "text": [f"{n} {duration(v)}, measured" for n, v in known.items()],
                "marker": ink,
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    return found


# --- axes ---


def _axes(
    rows: pd.DataFrame,
    measured: Measured,
    targets: tuple[float | None, float | None],
    look: Theme,
) -> dict[str, Any]:
    low, high = float(rows["x"].min()), max(rows["x"].max(), _measured_at(measured, rows))
    names = ["no budget" if pd.isna(b) else count(int(b)) for b in rows["budget"]]
    places = rows["x"].tolist()
    if measured.mixed:
        places, names = [*places, high], [*names, "as recorded"]
    x = axis(look, "token budget of a step (log2)", range=[low - 0.3, high + 0.35], anchor="y2")
    x |= {"tickvals": places, "ticktext": names}
    above = _times(rows, ("worst_s",), (measured.worst_s, targets[0]))
    below = _times(
        rows, ("ttft_s", "ttft_worst_s"), (measured.ttft_s, measured.ttft_worst_s, targets[1])
    )
    return {
        "xaxis": x,
        "yaxis": axis(look, "worst ITL, ms (log)", domain=_ABOVE, **_log(*above)),
        "yaxis2": axis(look, "TTFT, ms (log)", domain=_BELOW, **_log(*below)),
    }


def _times(
    rows: pd.DataFrame, columns: tuple[str, ...], more: tuple[float | None, ...]
) -> tuple[float, float]:
    """Shortest and longest of what is drawn, ms."""
    ends = [rows[f"{c}{end}"] for c in columns for end in ("_low", "_high")]
    times = pd.concat([*ends, pd.Series([v for v in more if v], dtype=float)]).dropna() * 1e3
    times = times[times > 0]
    return (1.0, 1000.0) if times.empty else (float(times.min()), float(times.max()))


def _log(low: float, high: float) -> dict[str, Any]:
    bottom, top = low / 1.5, high * 1.9
    ticks = gap_ticks(bottom, top)
    ends = [round(float(np.log10(v)), 4) for v in (bottom, top)]
    quiet = {"showline": False, "ticks": ""}
    return {
        "type": "log",
        "range": ends,
        "tickvals": ticks,
        "ticktext": [f"{t:,g}" for t in ticks],
        **quiet,
    }


# --- words ---


def _names(rows: pd.DataFrame, look: Theme) -> list[dict[str, Any]]:
    """Beside the last dot of each curve."""
    last, found = rows.nlargest(1, "x").iloc[0], []
    for (column, name, role), y in zip((_ITL, *_TTFTS), ("y", "y2", "y2"), strict=True):
        if pd.isna(last[column]) or last[column] <= 0:
            continue
        place = {"x": float(last["x"]), "y": _log10_ms(last[column]), "yref": y}
        text = note(look, f"<b>{name}</b>", xanchor="left", xshift=14, **place)
        found.append({**text, "font": {**text["font"], "color": look.fill(role)}})
    return _apart(found)


def _apart(names: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two names of one plot that would lie on each other move apart."""
    below = sorted((n for n in names if n["yref"] == "y2"), key=lambda n: float(n["y"]))
    if len(below) == 2 and below[1]["y"] - below[0]["y"] < 0.35:
        below[0]["yshift"], below[1]["yshift"] = -9, 9
    return names


def _log10_ms(value_s: float) -> float:
    return round(float(np.log10(value_s * 1e3)), 4)


def _chosen_line(chosen: int, look: Theme) -> dict[str, Any]:
    x = float(np.log2(chosen))
    ink = {"color": look.muted, "width": 1}
    return {
        "type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": ink,
        "layer": "below",
    }  # fmt: skip


def _callout(rows: pd.DataFrame, chosen: int, look: Theme) -> list[dict[str, Any]]:
    """At the chosen budget: its worst gap and what its first tokens take."""
    mine = rows[rows["budget"] == chosen]
    if mine.empty:
        return []
    row, found = mine.iloc[0], []
    for column, y in (("worst_s", "y"), ("ttft_worst_s", "y2")):
        if pd.isna(row[column]) or row[column] <= 0:
            continue
        place = {"x": float(row["x"]), "y": _log10_ms(row[f"{column}_high"]), "yref": y}
        words = f"<b>{duration(row[column])}</b>"
        found.append(note(look, words, CALLOUT_PX, yanchor="bottom", yshift=6, **place))
    return found


def _target_lines(targets: tuple[float | None, float | None], look: Theme) -> list[dict[str, Any]]:
    ink = {"color": look.lost, "width": 2, "dash": "dot"}
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": ink, "layer": "below"}
    return [
        {**across, "yref": y, "y0": target * 1e3, "y1": target * 1e3}
        for target, y in zip(targets, ("y", "y2"), strict=True)
        if target
    ]


def _target_names(
    targets: tuple[float | None, float | None],
    names: list[dict[str, Any]],
    shape: dict[str, Any],
    look: Theme,
) -> list[dict[str, Any]]:
    """In the margin, on the side of their line where no name of a curve stands."""
    found = []
    for target, y in zip(targets, ("y", "y2"), strict=True):
        if target:
            at = _log10_ms(target)
            low, high = shape["yaxis" if y == "y" else "yaxis2"]["range"]
            line = (high - low) / 8  # about one of text
            above = [n for n in names if n["yref"] == y and -line / 2 < n["y"] - at < 1.5 * line]
            place = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 4, "yref": y}
            side = "top" if above else "bottom"
            text = note(look, f"target {duration(target)}", y=at, yanchor=side, **place)
            found.append({**text, "font": {**text["font"], "color": look.lost}})
    return found
