"""Small pieces of HTML: headline, tiles, numbers. Every text that came from outside is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT = 100.0, 24.0


def headline(strong: str, rest: str = "") -> str:
    """The one sentence of the page: its first part bold."""
    tail = f" <span>{escape(rest)}</span>" if rest else ""
    return f"<b>{escape(strong)}</b>{tail}"


def spark(values: Sequence[float | None], role: str) -> str:
    """A line over the window, drawn on its own range from 0; None leaves a gap."""
    top = max((v for v in values if v is not None), default=0.0) or 1.0
    step = _WIDTH / max(len(values) - 1, 1)
    pieces: list[list[str]] = [[]]
    for i, value in enumerate(values):
        if value is None:
            pieces.append([])
        else:
            y = _HEIGHT - 1 - (value / top) * (_HEIGHT - 3)
            pieces[-1].append(f"{i * step:.1f},{y:.1f}")
    lines = "".join(f'<polyline points="{" ".join(p)}"/>' for p in pieces if len(p) > 1)
    box = f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none"'
    return f'<svg class="spark ink-{role}" {box} aria-hidden="true">{lines}</svg>'


def tile(
    name: str,
    value: str,
    note: str,
    series: Sequence[float | None],
    role: str,
    alert: bool = False,
    aside: str = "",
) -> str:
    """One number with its name, a remark and its last 30 s; aside: another, across from it."""
    mark = " alert" if alert else ""
    across = f'<div class="aside">{escape(aside)}</div>' if aside else ""
    return (
        f'<div class="tile{mark}"><div class="name">{escape(name)}</div>'
        f'<div class="value">{escape(value)} <small>{escape(note)}</small></div>'
        f"{across}{spark(series, role)}</div>"
    )


def tiles(parts: Sequence[str]) -> str:
    """Tiles side by side."""
    return f'<div class="tiles">{"".join(parts)}</div>'


_GOT = {"prefill": "prefill {}", "decode": "+{}", "padded": "padded", "recompute": "recomputed {}"}
_GOT_ROLES = {"padded": "padding", "recompute": "lost"}


def shares(limit: str, rows: Sequence[Mapping[str, Any]], step: str = "", cost: str = "") -> str:
    """Who got what in one step. rows: request_id, phase and tokens of each sequence in it.

    No row: the source does not say. step: which one, where it is not the newest. cost: what it
    took.
    """
    got = "".join(_share(int(r["request_id"]), str(r["phase"]), int(r["tokens"])) for r in rows)
    got = got or "<p>Who was in a step is not reported by this source.</p>"
    which = f" in step {escape(step)}" if step else ""
    paid = f" · {escape(cost)}" if cost else ""
    head = f'<div class="limit"><b>Who got what{which}</b> · {escape(limit)}{paid}</div>'
    return f'<div class="answer shares">{head}{got}</div>'


def _share(request_id: int, phase: str, tokens: int) -> str:
    colour = f"var(--ss-{_GOT_ROLES.get(phase, phase)})"
    text = _GOT[phase].format(f"{tokens:,}")
    return f'<span style="border-color:{colour}">r-{request_id} {text}</span>'


def numbers(title: str, facts: Sequence[tuple[str, str]]) -> str:
    """A column of large numbers, each with its meaning below."""
    rows = "".join(f"<dt>{escape(v)}</dt><dd>{escape(n)}</dd>" for v, n in facts)
    return f'<div class="numbers"><h4>{escape(title)}</h4><dl>{rows}</dl></div>'


def empty(title: str, text: str) -> str:
    """What stands where nothing can be shown yet, with what to do."""
    return f'<div class="empty"><b>{escape(title)}</b><p>{escape(text)}</p></div>'


def legend(entries: Sequence[tuple[str, str, str]]) -> str:
    """(role, text, shape) each; shape: "" a block, "hatch", "pale", "outline", "line", "dash"."""
    parts = "".join(
        f'<span><i class="{shape}" style="{_swatch(role, shape)}"></i>{escape(text)}</span>'
        for role, text, shape in entries
    )
    return f'<div class="ss-legend">{parts}</div>'


def _swatch(role: str, shape: str) -> str:
    colour = f"var(--ss-{role})"
    if shape == "hatch":
        stripes = f"transparent 0 3px, {colour} 3px 5px"
        return f"background: repeating-linear-gradient(135deg, {stripes})"
    if shape == "pale":
        return f"background: color-mix(in srgb, {colour} 45%, transparent)"
    if shape == "outline":
        return f"border: 1.5px solid {colour}"
    if shape == "dash":
        return f"border-color: {colour}"
    return f"background: {colour}"
