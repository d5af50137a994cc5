"""One request: its time by cause beside its time alone, and the latency of each of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from app.figures.data import Figure, known, nice_ceiling, numbers, records, significant
from app.theme import TEXT_PX, Theme, axis, hatched, layout, note
from app.units import duration, three

SPLIT_PX = 108
RIBBON_PX = 108
MAX_BARS = 240
_WIDTH_PX = 350
_CHAR_PX = 7.4
# Name of each part, its role (None: outline only).
PARTS: dict[str, tuple[str, str | None]] = {
    "queue": ("queue", None),
    "own": ("own prefill", "prefill"),
    "others": ("others' prefill", "prefill"),
    "decode": ("decode", "decode"),
    "lost": ("lost", "lost"),
    "held": ("held", "padding"),
}


def split_bars(ran: dict[str, float], alone: dict[str, float] | None, look: Theme) -> Figure:
    """ran: seconds by part, keys of PARTS; alone: the same without others, None where unknown."""
    rows = [("as it ran", ran)] + ([("alone", alone)] if alone else [])
    longest = max(sum(parts.values()) for _, parts in rows)
    top = nice_ceiling(longest * 1.12)
    data = [bar for name, parts in rows for bar in _stack(name, parts, top, look)]
    shape = layout(
        look, SPLIT_PX, barmode="overlay", margin={"l": 70, "r": 8, "t": 2, "b": 38}, bargap=0.25
    )
    shape["xaxis"] = axis(look, "seconds", range=[0, top], nticks=6)
    names: dict[str, Any] = {"tickvals": ["alone", "as it ran"], "categoryorder": "array"}
    order: dict[str, Any] = {"categoryarray": ["alone", "as it ran"], "range": [-0.5, 1.5]}
    plain: dict[str, Any] = {"showline": False, "ticks": "", "showgrid": False, "fixedrange": True}
    shape["yaxis"] = axis(look, type="category", **names, **order, **plain)
    shape["annotations"] = [_total(name, parts, look) for name, parts in rows]
    return {"data": data, "layout": shape}


def _total(name: str, parts: dict[str, float], look: Theme) -> dict[str, Any]:
    total = sum(parts.values())
    place = {"x": total, "y": name, "xanchor": "left", "xshift": 4}
    return note(look, f"<b>{duration(total)}</b>", 14, **place)


def _stack(name: str, parts: dict[str, float], top: float, look: Theme) -> list[dict[str, Any]]:
    made, start = [], 0.0
    for key, (words, role) in PARTS.items():
        size = parts.get(key, 0.0)
        if size > 0:
            piece = _piece(name, words, role, start, size, top, look)
            made.append(_hatched(piece, look) if key == "others" else piece)
            start += size
    return made


def _hatched(piece: dict[str, Any], look: Theme) -> dict[str, Any]:
    """Prefill like its own, but of others."""
    marker = piece["marker"] | {"pattern": hatched(look.prefill, look.background)}
    return piece | {"marker": marker, "textfont": {"color": look.text, "size": TEXT_PX}}


def _piece(
    row: str, words: str, role: str | None, start: float, size: float, top: float, look: Theme
) -> dict[str, Any]:
    fits = len(words) * _CHAR_PX < size / top * _WIDTH_PX
    edge = {"color": look.background if role else look.muted, "width": 1}
    return {
        "type": "bar",
        "orientation": "h",
        "name": words,
        "base": [significant(start, 6)],
        "x": [significant(size, 6)],
        "y": [row],
        "marker": {"color": look.fill(role) if role else look.background, "line": edge},
        "text": [words if fits else ""],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": look.text_on(role) if role else look.text, "size": TEXT_PX},
        "hovertemplate": f"{words}: {duration(size)}<extra></extra>",
    }


def ribbon(tokens: pd.DataFrame, base_s: float | None, look: Theme) -> Figure:
    """ITL of each token, coloured where it is over twice the base; longer answers keep maxima.

    tokens: of `queries.requests.tokens`; base_s: a step without anybody's prompt, None: unknown.
    """
    gaps = tokens[tokens["itl_s"].notna()]
    each = -(-len(gaps) // MAX_BARS) or 1
    bars = gaps if each == 1 else gaps.loc[gaps.groupby(gaps["index"] // each)["itl_s"].idxmax()]
    top = nice_ceiling(float(bars["itl_s"].max()) * 1e3 * 1.05) if len(bars) else 1.0
    data = [_bars(bars, each, base_s, look)]
    shape = layout(look, RIBBON_PX, margin={"l": 70, "r": 8, "t": 6, "b": 38}, bargap=0)
    title = "token" + (f" (worst of each {each})" if each > 1 else "")
    last = float(tokens["index"].max()) if len(tokens) else 1.0
    shape["xaxis"] = axis(look, title, range=[0, max(last + 1, 8)], nticks=8)
    shape["yaxis"] = axis(look, "ITL, ms", range=[0, top], nticks=4, showline=False, ticks="")
    if base_s is not None:
        data.append(_base(base_s, max(last + 1, 8), look))
    return {"data": data, "layout": shape}


def tone(gap: Mapping[Any, Any], base_s: float | None) -> str:
    """Role of a token by the gap before it: over twice the base it is named by its cause.

    gap: itl_s, prompt_tokens, lost_tokens. lost: computed again; prefill: prompts ran; else host.
    Where the steps are not reported it has no name.
    """
    itl_s = known(gap["itl_s"])
    if base_s is None or itl_s is None or itl_s <= 2 * base_s:
        return "decode"
    if known(gap["lost_tokens"]):
        return "lost"
    prompts = known(gap["prompt_tokens"])
    return "decode" if prompts is None else "prefill" if prompts else "overhead"


def _bars(bars: pd.DataFrame, each: int, base_s: float | None, look: Theme) -> dict[str, Any]:
    tells = zip(bars["index"], bars["itl_s"], bars["step"], bars["batch"], strict=True)
    return {
        "type": "bar",
        "name": "ITL",
        "x": ((bars["index"] // each + 0.5) * each).tolist(),
        "width": each,
        "y": numbers(bars["itl_s"], 4, 1e3),
        "marker": {
            "color": [look.fill(tone(gap, base_s)) for gap in records(bars)],
            "line": {"width": 1 if len(bars) <= 80 else 0, "color": look.background},
        },
        "text": [_text(*row) for row in tells],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
    }


def _text(index: int, itl_s: float, step: int, batch: float) -> str:
    shared = f", batch {three(batch)}" if pd.notna(batch) else ""
    return f"token {index}: {duration(itl_s)}, step {step}{shared}"


def _base(base_s: float, end: float, look: Theme) -> dict[str, Any]:
    line = {"color": look.text, "width": 1.5, "dash": "dash"}
    shape = {"type": "scatter", "mode": "lines", "name": "base", "line": line}
    return {**shape, "x": [0, end], "y": [significant(base_s * 1e3, 4)] * 2, "hoverinfo": "skip"}
