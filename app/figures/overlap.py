"""One step of a modelled device: reading and computing overlap, so they are two bars from zero.

A third bar, the step itself, stands below them only where it takes longer than both: kernels under
the roof, links between devices, a fixed overhead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.figures.anatomy import Segment, bar, ms_ticks
from app.figures.crossover import LIGHTER
from app.figures.data import Figure, nice_ceiling, significant
from app.theme import CALLOUT_PX, Theme, axis, layout, note
from app.units import milliseconds

HEIGHT_PX = 142
_LEFT_PX, _RIGHT_PX = 158, 8
_WIDTH_PX = 560  # inside of the figure at 1280 px


def overlap(
    pieces: Sequence[Segment], captions: Mapping[str, str], look: Theme, more: str = ""
) -> Figure:
    """pieces: of rows "read", "math" and perhaps "step"; captions: what each row divides by what.

    more: what reading would add if it were known, written behind its bar.
    """
    rows = [row for row in ("step", "math", "read") if any(p.row == row for p in pieces)]
    room = 1.6 if more else 1.35 if "step" in rows else 1.2
    longest = max((p.start_ms + p.length_ms for p in pieces), default=10.0)
    top = nice_ceiling(longest * room)
    shape = layout(
        look,
        HEIGHT_PX,
        barmode="overlay",
        margin={"l": _LEFT_PX, "r": _RIGHT_PX, "t": 4, "b": 24},
    )
    shape["xaxis"] = axis(look, **ms_ticks(top), range=[0, top], **LIGHTER)
    shape["yaxis"] = _rows(rows, captions, look)
    shape["annotations"] = [_end(pieces, row, more if row == "read" else "", look) for row in rows]
    shape["annotations"] += _key(pieces, look)
    data = [_trace(p, rows, look, top) for p in pieces]
    return {"data": data, "layout": shape}


def _rows(rows: Sequence[str], captions: Mapping[str, str], look: Theme) -> dict[str, Any]:
    texts = [f"<b>{row}</b><br>{captions.get(row, '')}" for row in rows]
    return axis(
        look,
        showgrid=False,
        showline=False,
        ticks="",
        fixedrange=True,
        range=[-0.5, len(rows) - 0.5],
        tickvals=list(range(len(rows))),
        ticktext=texts,
        ticklabelstandoff=6,
        tickfont={"size": 13, "color": look.text},
    )


def _trace(piece: Segment, rows: Sequence[str], look: Theme, top: float) -> dict[str, Any]:
    """Rows are positions rather than names, so that two lines of caption fit beside each."""
    base = {"type": "bar", "orientation": "h"}
    made = base | bar(piece, look, top, _WIDTH_PX)
    made["y"] = [rows.index(piece.row)]
    made["width"] = [0.74]
    return made


def _end(pieces: Sequence[Segment], row: str, more: str, look: Theme) -> dict[str, Any]:
    """The length of a row behind its end."""
    ends = [p.start_ms + p.length_ms for p in pieces if p.row == row]
    rows = [r for r in ("step", "math", "read") if any(p.row == r for p in pieces)]
    text = f"<b>{milliseconds(max(ends) / 1e3)}</b>" + (f" {more}" if more else "")
    place = {"x": significant(max(ends), 5), "y": rows.index(row)}
    return note(look, text, CALLOUT_PX, **place, xanchor="left", xshift=5)


def _key(pieces: Sequence[Segment], look: Theme) -> list[dict[str, Any]]:
    """What the step spends beyond its floor, with its share, right of the bars."""
    beyond = [p for p in pieces if p.row == "step" and p.part not in ("floor", "attention")]
    out = []
    for line, piece in enumerate(beyond):
        glyph = "▨" if piece.below_roof else "■"
        mark = f'<span style="color:{look.fill(piece.role)}">{glyph}</span>'
        text = f"{mark} {piece.part} {milliseconds(piece.length_ms / 1e3)}"
        place = {"xref": "paper", "x": 1, "yref": "paper", "y": 0.98 - 0.16 * line}
        out.append(note(look, text, **place, xanchor="right", yanchor="top"))
    return out
