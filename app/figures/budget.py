"""Where a device's memory goes: weights, KV cache, activations, and what is left, or is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.figures.crossover import LIGHTER
from app.figures.data import Figure, nice_ceiling, significant
from app.theme import TEXT_PX, Theme, axis, hatched, layout, note
from app.units import si, tick

HEIGHT_PX = 98
_WIDTH_PX = 480
_CHAR_PX = 7.2
ROLES = {"weights": "memory", "KV": "cached", "activations": "overhead"}


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes over the whole deployment; None is unknown and named as such, never drawn as zero."""

    weights: float
    kv: float | None
    activations: float | None
    usable: float
    capacity: float

    @property
    def parts(self) -> dict[str, float]:
        """The known parts in drawing order."""
        every = {"weights": self.weights, "KV": self.kv, "activations": self.activations}
        return {name: size for name, size in every.items() if size}

    @property
    def needed(self) -> float:
        """What must fit: activations are an estimate, and shown beside it."""
        return self.weights + (self.kv or 0.0)


def budget(memory: Budget, look: Theme) -> Figure:
    """One bar: what is needed, solid within the memory and hatched beyond it."""
    end = max(sum(memory.parts.values()), memory.capacity)
    top = nice_ceiling(end * 1.02)
    shape = layout(
        look, HEIGHT_PX, barmode="overlay", margin={"l": 8, "r": 14, "t": 26, "b": 26}, bargap=0
    )
    shape["xaxis"] = axis(look, **_ticks(top), range=[0, top], **LIGHTER)
    shape["yaxis"] = axis(look, visible=False, range=[-0.5, 0.5], fixedrange=True)
    data: list[dict[str, Any]] = []
    start = 0.0
    for name, size in memory.parts.items():
        data += _part(name, start, size, memory.usable, look, top)
        start += size
    if start < memory.usable:
        data.append(_free(start, memory.usable - start, look, top))
    shape["shapes"] = [_wall(memory.capacity, look, "solid")]
    if memory.usable < memory.capacity:
        shape["shapes"].append(_wall(memory.usable, look, "dot"))
    shape["annotations"] = _notes(memory, look, top)
    return {"data": data, "layout": shape}


def _ticks(top: float) -> dict[str, Any]:
    steps = (m * 10.0**p for p in range(6, 16) for m in (1, 2, 5))
    step = next((s for s in steps if top / s <= 6), top / 4)
    values = [step * i for i in range(int(top * 0.95 / step) + 1)]
    return {"tickvals": values, "ticktext": [tick(v, "B") if v else "0" for v in values]}


def _part(
    name: str, start: float, size: float, usable: float, look: Theme, top: float
) -> list[dict[str, Any]]:
    """The piece that fits, and what hangs over the end of the memory."""
    inside = min(max(usable - start, 0.0), size)
    made = []
    if inside:
        made.append(_bar(name, start, inside, f"{name} {si(size, 'B')}", False, look, top))
    if size > inside:
        over = size - inside
        text = "" if inside else f"{name} {si(size, 'B')}"
        made.append(_bar(name, start + inside, over, text, True, look, top))
    return made


def _bar(
    name: str, start: float, size: float, text: str, over: bool, look: Theme, top: float
) -> dict[str, Any]:
    role = ROLES[name]
    colour = look.fill(role)
    marker: dict[str, Any] = {"color": colour, "line": {"width": 1, "color": look.background}}
    if over:
        marker["pattern"] = hatched(colour, look.background)
    fits = not over and len(text) * _CHAR_PX < size / top * _WIDTH_PX
    return {
        "type": "bar",
        "orientation": "h",
        "name": f"{name}, does not fit" if over else name,
        "x": [significant(size, 5)],
        "base": [significant(start, 5)],
        "y": [0],
        "width": [0.9],
        "marker": marker,
        "text": [text if fits else ""],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": look.text_on(role), "size": TEXT_PX},
        "hovertemplate": f"{name}: {si(size, 'B')}{' too much' if over else ''}<extra></extra>",
    }


def _free(start: float, size: float, look: Theme, top: float) -> dict[str, Any]:
    """Outline only, as everything that nobody uses."""
    text = f"free {si(size, 'B')}"
    return {
        "type": "bar",
        "orientation": "h",
        "name": "free",
        "x": [significant(size, 5)],
        "base": [significant(start, 5)],
        "y": [0],
        "width": [0.9],
        "marker": {"color": "rgba(0,0,0,0)", "line": {"width": 1.5, "color": look.idle}},
        "text": [text if len(text) * _CHAR_PX < size / top * _WIDTH_PX else ""],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": look.muted, "size": TEXT_PX},
        "hovertemplate": f"{text}<extra></extra>",
    }


def _wall(at: float, look: Theme, dash: str) -> dict[str, Any]:
    line = {"color": look.text, "width": 3 if dash == "solid" else 2, "dash": dash}
    ends = {"y0": 0, "y1": 1.08, "yref": "paper", "x0": at, "x1": at}
    return {"type": "line", "xref": "x", **ends, "line": line}


def _notes(memory: Budget, look: Theme, top: float) -> list[dict[str, Any]]:
    """Above the bar: its heading, what does not fit into it, and what is unknown."""
    place = {"yref": "paper", "y": 1.02, "yanchor": "bottom"}
    head = note(look, f"<b>{_heading(memory)}</b>", 14, **place, xref="paper", x=0, xanchor="left")
    unknown = [n for n in ("kv", "activations") if getattr(memory, n) is None]
    if not unknown:
        return [head]
    names = {"kv": "KV cache", "activations": "activations"}
    text = f"unknown: {' and '.join(names[n] for n in unknown)}"
    return [head, note(look, text, **place, xref="paper", x=1, xanchor="right")]


def _heading(memory: Budget) -> str:
    room = si(memory.usable, "B")
    if memory.needed <= memory.usable:
        return f"Weights and KV: {si(memory.needed, 'B')} of {room}"
    return f"Weights and KV: {si(memory.needed, 'B')} do not fit in {room}"
