"""The step strip and the token strip: the last 30 s, a bar for every step or for every bin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from app.figures import marks as events
from app.figures.data import Figure, decimals, nice_ceiling, numbers, places, significant
from app.theme import Theme, axis, layout, note
from app.units import count, duration

HEIGHT_PX = 252
CLIP_MEDIANS = 4
TOKENS = ("decode", "prefill", "cached", "lost")  # from the bottom up
MAX_CALLOUTS = 4
_APART = 3.2 / 30  # callouts, as a share of the window
_STEP_DOMAIN = [0.42, 1.0]
_TOKEN_DOMAIN = [0.0, 0.27]


def clip_at(median: float, tallest: float) -> tuple[float, bool]:
    """Where bars end, and whether any is cut: four times the median to two digits."""
    limit = significant(CLIP_MEDIANS * median, 2)
    return (limit, True) if tallest > limit else (tallest, False)


@dataclass(frozen=True, slots=True)
class Picked:
    """The step that was clicked: its middle in seconds, as x_s of the bars, and its time."""

    step: int
    x_s: float
    t_step_s: float


def strip(
    bars: pd.DataFrame,
    marks: pd.DataFrame,
    median_s: float,
    span_s: float,
    binned_s: float | None,
    look: Theme,
    picked: Picked | None = None,
    end: str = "the newest step",
) -> Figure:
    """Two rows on one time axis: step time in ms, and tokens per step.

    bars: rows of `queries.live_bars.bars`; marks: of `queries.live.marks`. median_s is of all steps
    of the window; end: what stands at the axis' zero.
    """
    tallest_ms = float(_column(bars, "t_step_s").max()) * 1e3
    limit_ms, cut = clip_at(median_s * 1e3, tallest_ms)
    totals = sum(_amounts(bars, kind) for kind in TOKENS)
    limit_tokens, cut_tokens = clip_at(max(float(np.median(totals)), 2.0), float(totals.max()))
    tops = (nice_ceiling(limit_ms * 1.14), nice_ceiling(limit_tokens * 1.1))
    fine = decimals(span_s)
    data = _steps(bars, look, limit_ms, fine) + _tokens(bars, look, limit_tokens, fine)
    data += events.lines(look, marks, 0, tops[0])
    data += events.lines(look, marks, 0, tops[1], yaxis="y2")
    shape = layout(look, HEIGHT_PX, barmode="overlay", margin={"l": 52, "r": 8, "t": 20, "b": 42})
    shape |= _axes(look, span_s, tops, end)
    shape["annotations"] = events.labels(look, marks, span_s, yref="paper", y=1.0)
    if picked:
        data.append(_outline(picked, look, limit_ms, fine))
        shape["annotations"].append(_picked_note(picked, look, limit_ms, span_s))
    if cut:
        shape["annotations"] += _callouts(bars, look, limit_ms, span_s, picked)
    shape["annotations"] += _captions(look, binned_s, cut, cut_tokens, limit_ms, limit_tokens)
    return {"data": data, "layout": shape}


def _outline(picked: Picked, look: Theme, limit_ms: float, fine: int) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": "selected",
        "x": places([picked.x_s], fine),
        "y": [significant(min(picked.t_step_s * 1e3, limit_ms), 4)],
        "width": places([picked.t_step_s], fine + 1),
        "marker": {"color": "rgba(0,0,0,0)", "line": {"color": look.text, "width": 2}},
        "hoverinfo": "skip",
    }


def _picked_note(picked: Picked, look: Theme, limit_ms: float, span_s: float) -> dict[str, Any]:
    """Over its bar, with what the bar may hide: its real time."""
    place = {"x": round(picked.x_s, 6), "y": min(picked.t_step_s * 1e3, limit_ms), "yref": "y"}
    share = -picked.x_s / span_s
    anchor = "right" if share < 0.1 else "left" if share > 0.9 else "center"
    text = f"<b>step {count(picked.step)} · {duration(picked.t_step_s)} ▼</b>"
    back = {"bgcolor": look.background, "borderpad": 1}
    return note(look, text, **place, xanchor=anchor, yanchor="bottom", **back)


def _axes(look: Theme, span_s: float, tops: tuple[float, float], end: str) -> dict[str, Any]:
    x = axis(look, f"seconds before {end}", range=[-span_s, 0], anchor="y2", nticks=8)
    quiet = {"nticks": 4, "showline": False, "ticks": "", "rangemode": "tozero"}
    quiet["fixedrange"] = True  # a drag chooses a window of steps
    return {
        "xaxis": x,
        "yaxis": axis(look, "step, ms", domain=_STEP_DOMAIN, range=[0, tops[0]], **quiet),
        "yaxis2": axis(look, "tokens", domain=_TOKEN_DOMAIN, range=[0, tops[1]], **quiet),
    }


def _steps(bars: pd.DataFrame, look: Theme, limit_ms: float, fine: int) -> list[dict[str, Any]]:
    decode = _column(bars, "decode_only")
    groups = (("with prefill", "prefill", ~decode), ("decode", "decode", decode))
    x, width, t_step_s, step = (_column(bars, c) for c in ("x_s", "width_s", "t_step_s", "step"))
    return [
        {
            "type": "bar",
            "name": name,
            "x": places(x[rows], fine),
            "y": numbers(np.minimum(t_step_s[rows] * 1e3, limit_ms)),
            "width": places(width[rows], fine + 1),
            "customdata": step[rows].tolist(),
            "text": [duration(t) for t in t_step_s[rows].tolist()],
            "textposition": "none",
            "marker": {"color": look.fill(role), "line": {"width": 0}},
            "hovertemplate": "step %{customdata} · %{text}<extra>" + name + "</extra>",
        }
        for name, role, rows in groups
    ]


def _column(bars: pd.DataFrame, name: str) -> Any:
    """As numpy has it: what pandas does around each operation costs more than the bars."""
    return bars[name].to_numpy()


def _amounts(bars: pd.DataFrame, kind: str) -> Any:
    """Tokens of a kind; what the source does not report draws no bar."""
    return np.nan_to_num(bars[f"{kind}_tokens"].to_numpy(dtype=float, na_value=np.nan))


_TELLS = {"cached": "cached, not computed,", "lost": "recomputed"}


def _tokens(bars: pd.DataFrame, look: Theme, limit: float, fine: int) -> list[dict[str, Any]]:
    """Stacked by hand, decode at the bottom. A bar that is cut is divided by its shares.

    Cut from above it would lose what stands on top: the tokens that the prefix cache has saved.
    """
    out: list[dict[str, Any]] = []
    kinds = {kind: _amounts(bars, kind) for kind in TOKENS}
    totals = sum(kinds.values())
    scale = np.where(totals > limit, limit / np.maximum(totals, 1.0), 1.0)
    base = np.zeros(len(bars))
    x, width = _column(bars, "x_s"), _column(bars, "width_s")
    for name, tokens in kinds.items():
        rows = tokens > 0
        shown = tokens * scale
        out.append(
            {
                "type": "bar",
                "name": f"{name} tokens",
                "x": places(x[rows], fine),
                "y": numbers(shown[rows]),
                "base": numbers(base[rows]),
                "width": places(width[rows], fine + 1),
                "text": [count(t) for t in tokens[rows].tolist()],
                "textposition": "none",
                "yaxis": "y2",
                "marker": {"color": look.fill(name), "line": {"width": 0}},
                "hovertemplate": f"%{{text}} {_TELLS.get(name, name)} tokens<extra></extra>",
            }
        )
        base = base + shown
    return out


def _callouts(
    bars: pd.DataFrame, look: Theme, limit_ms: float, span_s: float, picked: Picked | None
) -> list[dict[str, Any]]:
    """The tallest of the cut bars, apart from each other, with their real time."""
    shown: list[float] = [picked.x_s] if picked else []
    out: list[dict[str, Any]] = []
    places_s, times_s = _column(bars, "x_s").tolist(), _column(bars, "t_step_s")
    for row in np.argsort(-times_s, kind="stable")[:24].tolist():
        x, t = places_s[row], float(times_s[row])
        if t * 1e3 <= limit_ms or len(out) >= MAX_CALLOUTS:
            break
        if any(abs(x - other) < _APART * span_s for other in shown):
            continue
        shown.append(x)
        place: dict[str, Any] = {"x": round(x, 6), "y": limit_ms, "yanchor": "bottom"}
        anchor = "right" if x > -span_s / 15 else "center"
        out.append(note(look, f"{duration(t)} ▲", **place, xanchor=anchor, yref="y"))
    return out


def _captions(
    look: Theme,
    binned_s: float | None,
    cut: bool,
    cut_tokens: bool,
    limit_ms: float,
    limit_tokens: float,
) -> list[dict[str, Any]]:
    bar = (
        "a bar is a step"
        if binned_s is None
        else f"a bar is the longest step of {duration(binned_s)}"
    )
    steps = [bar, f"cut at {duration(limit_ms / 1e3)}, 4× the median"] if cut else [bar]
    tokens = ["tokens of a step" if binned_s is None else "the step with most tokens"]
    tokens += [f"cut at {count(limit_tokens)}, by share"] if cut_tokens else []
    both = note(
        look,
        f"{' · '.join(steps)}  |  below: {' · '.join(tokens)}",
        xref="paper",
        yref="paper",
        x=1,
        y=0.29,
        xanchor="right",
        yanchor="bottom",
    )
    both["font"] = {"size": 13, "color": look.muted}
    return [both]
