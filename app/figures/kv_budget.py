"""Where the memory of a running engine goes: weights, KV blocks by state, activations, the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.figures.data import Figure, nice_ceiling, significant
from app.theme import TEXT_PX, Theme, axis, hatched, layout, note
from app.units import percent, si, tick

HEIGHT_PX = 66
_WIDTH_PX = 940
_CHAR_PX = 7.2


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes, over all devices; None where a source does not report it, and then it is not drawn.

    used, cached, free: the KV blocks on offer. capacity: of the devices, usable: what of it an
    engine may take for weights and KV; the rest of it is kept for activations.
    """

    weights: float | None
    used: float | None
    cached: float | None
    free: float | None
    activations: float | None
    usable: float | None = None
    capacity: float | None = None

    @property
    def pool(self) -> float:
        return (self.used or 0.0) + (self.cached or 0.0) + (self.free or 0.0)

    @property
    def kept(self) -> float:
        """For activations, by assumption."""
        return (self.capacity or 0.0) - (self.usable or 0.0)

    @property
    def rest(self) -> float:
        """Of the devices, in no part."""
        known = (self.weights or 0.0) + self.pool + (self.activations or 0.0)
        return max(0.0, (self.usable or 0.0) - known)


# Name, its text, role (None: outline only), and whether it is hatched.
Part = tuple[str, float, str | None, bool]


def kv_budget(memory: Memory, look: Theme) -> Figure:
    """One bar; what is unknown is named above it."""
    parts = _parts(memory)
    top = nice_ceiling(max(sum(size for _, size, _, _ in parts), memory.capacity or 0.0) or 1.0)
    data: list[dict[str, Any]] = []
    start = 0.0
    for part in parts:
        data.append(_bar(part, start, top, look))
        start += part[1]
    shape = layout(look, HEIGHT_PX, barmode="overlay", margin={"l": 8, "r": 24, "t": 22, "b": 22})
    at = [i * top / 10 for i in range(11)]
    ticks: dict[str, Any] = {"tickvals": at, "ticktext": [tick(v, "B") if v else "0" for v in at]}
    shape["xaxis"] = axis(look, range=[0, top], showgrid=False, **ticks)
    shape["yaxis"] = axis(look, visible=False, range=[-0.5, 0.5], fixedrange=True)
    shape["annotations"] = _notes(memory, look)
    return {"data": data, "layout": shape}


def _parts(memory: Memory) -> list[Part]:
    every: list[tuple[str, float | None, str | None, bool]] = [
        ("weights", memory.weights, "memory", False),
        ("KV used", memory.used, "decode", False),
        ("KV cached", memory.cached, "cached", False),
        ("KV free", memory.free, None, False),
        ("activations", memory.activations, "overhead", False),
        ("free", memory.rest, None, False),
        ("kept for activations", memory.kept, "overhead", True),
    ]
    return [(name, size, role, hatch) for name, size, role, hatch in every if size]


def _bar(part: Part, start: float, top: float, look: Theme) -> dict[str, Any]:
    name, size, role, hatch = part
    text = f"{name} {si(size, 'B')}"
    fits = len(text) * _CHAR_PX < size / top * _WIDTH_PX
    marker: dict[str, Any] = {
        "color": look.fill(role) if role else "rgba(0,0,0,0)",
        "line": {"width": 1, "color": look.background if role else look.idle},
    }
    if role and hatch:
        marker["pattern"] = hatched(look.fill(role), look.background)
    ink = look.text_on(role) if role and not hatch else look.text
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [significant(size, 5)],
        "base": [significant(start, 5)],
        "y": [0],
        "width": [0.96],
        "marker": marker,
        "text": [text if fits and not hatch else ""],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": ink, "size": TEXT_PX},
        "hovertemplate": f"{text}<extra></extra>",
    }


def _notes(memory: Memory, look: Theme) -> list[dict[str, Any]]:
    place = {"yref": "paper", "y": 1.04, "yanchor": "bottom"}
    left = note(look, _heading(memory), 14, xref="paper", x=0, xanchor="left", **place)
    right = note(look, _unknown(memory), xref="paper", x=1, xanchor="right", **place)
    right["font"] |= {"color": look.muted}
    return [left, right] if right["text"] else [left]


def _heading(memory: Memory) -> str:
    pool = f"KV cache {si(memory.pool, 'B')}" if memory.pool else "KV cache"
    if not memory.pool or memory.used is None:
        return f"<b>{pool}</b>"
    shares = [f"{percent(memory.used / memory.pool)} used"]
    if memory.cached:
        shares.append(f"{percent(memory.cached / memory.pool)} cached")
    return f"<b>{pool}</b>: {', '.join(shares)}"


def _unknown(memory: Memory) -> str:
    missing = [
        name
        for name, value in (
            ("weights", memory.weights),
            ("KV bytes", memory.used),
            ("activations", memory.activations or memory.capacity),
            ("the machine's memory", memory.capacity),
        )
        if value is None
    ]
    if missing:
        return f"not reported: {', '.join(missing)}"
    return f"hatched: {si(memory.kept, 'B')} kept for activations" if memory.kept else ""
