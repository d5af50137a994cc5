"""Anatomy of a step: what it must read, what it must compute, and what it took.

Reading and computing overlap, so they are two bars from zero and never one on the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import Figure, known, nice_ceiling, records, significant
from app.theme import Theme, axis, hatched, layout, note
from app.units import count, duration, three

HEIGHT_PX = 150
ROWS = ("measured", "math", "read")
_FACET_PX = 300
_DOMAINS = ((0.0, 0.455), (0.545, 1.0))
_CHAR_PX = 7.2
_TICK_STEPS_MS = [m * 10.0**p for p in range(-3, 7) for m in (1, 2, 5)]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a bar, milliseconds."""

    row: str
    part: str
    start_ms: float
    length_ms: float
    role: str
    below_roof: bool = False


def segments(step: dict[str, Any]) -> list[Segment]:
    """The pieces of one step's three bars; a part that the source did not report is left out."""
    out: list[Segment] = []
    weights, kv = known(step["t_weights_s"]), known(step["t_kv_s"])
    compute, memory = known(step["t_compute_s"]), known(step["t_memory_s"])
    if weights is not None and kv is not None:
        out.append(Segment("read", "weights", 0.0, weights * 1e3, "memory"))
        out.append(Segment("read", "KV", weights * 1e3, kv * 1e3, "cached"))
    if compute is not None:
        out.append(Segment("math", "math", 0.0, compute * 1e3, "compute"))
    return out + _measured(step, compute, memory)


def _measured(step: dict[str, Any], compute: float | None, memory: float | None) -> list[Segment]:
    forward, host = float(step["forward_s"]) * 1e3, float(step["t_host_s"]) * 1e3
    tail = Segment("measured", "host", forward, host, "overhead")
    if compute is None or memory is None:
        return [Segment("measured", "forward", 0.0, forward, "padding"), tail]
    role = "compute" if compute > memory else "memory"
    floor = min(max(compute, memory) * 1e3, forward)
    parts = [Segment("measured", "floor", 0.0, floor, role)]
    if forward > floor:
        parts.append(Segment("measured", "below roof", floor, forward - floor, role, True))
    return [*parts, tail]


def anatomy(
    steps: pd.DataFrame,
    look: Theme,
    took: str = "measured",
    held: bool = False,
    picked: int | None = None,
) -> Figure:
    """Two facets on a millisecond axis each: decode, and the newest phase with prompt tokens.

    steps: rows of `queries.live.anatomy`, one per phase; held: of `.anatomy_of`. took: what the
    third bar is called, which a cost model has not measured. picked: the step that was chosen, or
    at which the engine is paused.
    """
    rows = {str(r["phase"]): r for r in records(steps)}
    prompts = [rows[p] for p in ("mixed", "prefill") if p in rows]
    prompts.sort(key=lambda r: (r["step"] != picked, r["age_s"]))
    facets = [rows.get("decode"), prompts[0] if prompts else None]
    titles = [_title(step, held, picked) for step in facets]
    data: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    shape = layout(look, HEIGHT_PX, barmode="overlay", margin={"l": 70, "r": 4, "t": 22, "b": 24})
    for place, step in enumerate(facets):
        _facet(place, step, titles[place], look, data, notes, shape)
    shape["yaxis"] |= {"tickvals": list(ROWS), "ticktext": [took, *ROWS[1:]]}
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


def _facet(
    place: int,
    step: dict[str, Any] | None,
    title: str,
    look: Theme,
    data: list[dict[str, Any]],
    notes: list[dict[str, Any]],
    shape: dict[str, Any],
) -> None:
    suffix = "" if place == 0 else "2"
    pieces = segments(step) if step else []
    end = max((s.start_ms + s.length_ms for s in pieces), default=10.0)
    top = nice_ceiling(end * 1.22)
    shape[f"xaxis{suffix}"] = axis(
        look,
        **ms_ticks(top),
        domain=list(_DOMAINS[place]),
        range=[0, top],
        anchor=f"y{suffix}",
    )
    shape[f"yaxis{suffix}"] = axis(
        look,
        anchor=f"x{suffix}",
        showgrid=False,
        showline=False,
        ticks="",
        fixedrange=True,
        categoryorder="array",
        categoryarray=list(ROWS),
        range=[-0.5, 2.5],
        type="category",
        showticklabels=place == 0,
        ticklabelstandoff=6,
        tickfont={"size": 13, "color": look.text},
    )
    data += _bars(pieces, look, top, suffix)
    notes += _notes(step, title, pieces, look, top, suffix)


def ms_ticks(top_ms: float) -> dict[str, Any]:
    """Four or five round ticks of a millisecond axis that ends at top_ms, each with its unit."""
    step = next((s for s in _TICK_STEPS_MS if top_ms / s <= 5), top_ms / 4)
    values = [step * i for i in range(int(top_ms * 0.9 / step) + 1)]
    return {"tickvals": values, "ticktext": [_tick(v) for v in values]}


def _tick(value_ms: float) -> str:
    if value_ms == 0:
        return "0"
    return f"{value_ms:g} ms" if value_ms < 1e3 else f"{value_ms / 1e3:g} s"


def _bars(pieces: list[Segment], look: Theme, top: float, suffix: str) -> list[dict[str, Any]]:
    """One trace a piece: at most six a facet. Keeps the rows present when a bar is missing."""
    base = {"type": "bar", "orientation": "h", "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    empty = {**base, "x": [0, 0, 0], "y": list(ROWS), "hoverinfo": "skip", "name": "rows"}
    return [empty] + [{**base, **bar(piece, look, top, _FACET_PX)} for piece in pieces]


def bar(piece: Segment, look: Theme, top_ms: float, width_px: float) -> dict[str, Any]:
    """The trace of a piece on an axis of top_ms over width_px; its name stands in it if it fits."""
    colour = look.fill(piece.role)
    text = f"{piece.part} {duration(piece.length_ms / 1e3)}"
    room = piece.length_ms / top_ms * width_px
    whole_row = piece.part == piece.row  # its length stands beside it already
    fits = not piece.below_roof and not whole_row and len(text) * _CHAR_PX < room
    marker: dict[str, Any] = {"color": colour, "line": {"width": 0}}
    if piece.below_roof:
        marker["pattern"] = hatched(colour, look.background)
    return {
        "name": piece.part,
        "x": [significant(piece.length_ms, 4)],
        "base": [significant(piece.start_ms, 4)],
        "y": [piece.row],
        "width": [0.78],
        "marker": marker,
        "text": [text if fits else ""],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": look.text_on(piece.role), "size": 13},
        "hovertemplate": f"{piece.part}: {duration(piece.length_ms / 1e3)}<extra></extra>",
    }


def _notes(
    step: dict[str, Any] | None,
    text: str,
    pieces: list[Segment],
    look: Theme,
    top: float,
    suffix: str,
) -> list[dict[str, Any]]:
    ref = {"xref": f"x{suffix}", "yref": f"y{suffix}"}
    domain = {"xref": f"x{suffix} domain", "yref": "paper", "x": 0, "xanchor": "left"}
    title = note(look, text, y=1, yanchor="bottom", **domain)
    if step is None:
        return [title]
    out = [title]
    for row in ROWS:
        ends = [s.start_ms + s.length_ms for s in pieces if s.row == row]
        text = f"<b>{duration(max(ends) / 1e3)}</b>" if ends else "not reported by this source"
        out.append(
            note(look, text, x=max(ends, default=0.0), y=row, xanchor="left", xshift=4, **ref)
        )
    out += [_below_roof(s, look, ref) for s in pieces if s.below_roof and _roomy(s, top)]
    return out


def _roomy(piece: Segment, top: float) -> bool:
    return piece.length_ms / top * _FACET_PX > len(piece.part) * _CHAR_PX + 8


def _below_roof(piece: Segment, look: Theme, ref: dict[str, Any]) -> dict[str, Any]:
    middle = piece.start_ms + piece.length_ms / 2
    back = {"bgcolor": look.background, "borderpad": 1}
    return note(look, piece.part, x=middle, y=piece.row, **ref, **back)


def _title(step: dict[str, Any] | None, held: bool, picked: int | None) -> str:
    if step is None:
        return f"no step of this kind {'in this window' if held else 'yet'}"
    facts = [f"<b>{step['phase']}</b>"]
    fresh, again = count(step["prefill_tokens"]), count(step["recomputed_tokens"])
    if step["recomputed_tokens"]:
        facts.append(f"{fresh} new, {again} again" if step["prefill_tokens"] else f"{again} again")
    elif step["prefill_tokens"]:
        facts.append(f"{fresh} prompt tokens")
    rows = int(step["decode_seqs"]) + int(step["padded_slots"])
    if rows:
        facts.append(f"{rows} rows" if rows > 1 else "1 row")
    facts.append(_which(step, held, picked))
    if _beats_roof(step):
        facts.append("beats the roof: recalibrate")
    return " · ".join(facts)


def _which(step: dict[str, Any], held: bool, picked: int | None) -> str:
    """Which step this is, or of how many it is the median."""
    if held and step["step"] != picked and step["n"] > 1:
        return f"median of {count(step['n'])}"
    name = f"step {count(step['step'])}"
    if step["step"] == picked:
        return f"<b>selected {name}</b>" if held else f"<b>{name}</b>"
    return f"{three(step['age_s'])} s ago" if step["age_s"] > 1 else name


def _beats_roof(step: dict[str, Any]) -> bool:
    slack = known(step["t_inefficiency_s"])
    return slack is not None and slack < 0
