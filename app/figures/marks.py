"""Marks on time axes: what somebody did, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from app.figures.data import detail, records
from app.theme import Theme, note

MAX_LABELS = 6
# Of these many can come in a row; the line says enough after the first.
_CROWDED = ("peak_beaten", "drop", "preempt")


def label(kind: str, raw: Any) -> str:
    """A few words for an event: "→ static", "max batch 10", "load skew × 8", "KV 64 blocks", …"""
    facts = detail(raw)
    words = _WORDS.get(kind)
    return kind.replace("_", " ") if words is None else words(facts).strip()


def _preempted(facts: dict[str, Any]) -> str:
    """One, or a series of them that the query has merged."""
    return f"preempted × {facts['count']}" if facts.get("count", 1) > 1 else "preempted"


def _load_label(facts: dict[str, Any]) -> str:
    wanted = facts.get("to", facts)
    if not isinstance(wanted, dict) or not wanted.get("workload"):
        return "load off"
    if wanted.get("concurrency") is not None:
        return f"{wanted['workload']} × {wanted['concurrency']}"
    if wanted.get("rate") is not None:
        return f"{wanted['workload']} {wanted['rate']:g}/s"
    return str(wanted["workload"])


_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "scheduler_switch": lambda facts: f"→ {facts.get('to', 'switch')}",
    "max_batch": lambda facts: f"max batch {facts.get('to', '')}",
    "chunk_tokens": lambda facts: f"budget {facts.get('to', '')}",
    "prefix_cache": lambda facts: f"prefix cache {'on' if facts.get('to') else 'off'}",
    "kv_blocks": lambda facts: f"KV {facts.get('to', '')} blocks",
    "load": _load_label,
    "preempt": _preempted,
    "inject": lambda facts: f"inject {facts.get('prompt_tokens', 0):,}",
    "race": lambda facts: f"race: {facts.get('mode', '')}",
    "peak_beaten": lambda facts: "peak beaten: recalibrate",
}


def lines(
    look: Theme,
    marks: pd.DataFrame,
    bottom: float,
    top: float,
    xaxis: str = "x",
    yaxis: str = "y",
) -> list[dict[str, Any]]:
    """Vertical lines from `bottom` to `top`: what somebody did, and apart from it preemptions."""
    kinds, places = marks["kind"].tolist(), marks["x_s"].tolist()
    lost = [x for x, kind in zip(places, kinds, strict=True) if kind == "preempt"]
    acts = [x for x, kind in zip(places, kinds, strict=True) if kind != "preempt"]
    groups = (("marks", look.text, acts), ("preempted", look.lost, lost))
    place = {"xaxis": xaxis, "yaxis": yaxis}
    return [
        {**_line(at, bottom, top), **place, "name": name, "line": _ink(colour)}
        for name, colour, at in groups
        if name == "marks" or at
    ]


def _line(places: list[float], bottom: float, top: float) -> dict[str, Any]:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for x in places:
        xs += [round(float(x), 3), round(float(x), 3), None]
        ys += [bottom, top, None]
    shape = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "connectgaps": False}
    return {**shape, "x": xs, "y": ys}


def _ink(colour: str) -> dict[str, Any]:
    return {"color": colour, "width": 1.5, "dash": "dash"}


def labels(
    look: Theme, marks: pd.DataFrame, span: float, end: float = 0.0, **place: Any
) -> list[dict[str, Any]]:
    """Annotations for the newest marks, none on top of another; `place` holds yref and y.

    span: length of the axis, which ends at `end`, both in the unit of x_s.
    """
    shown: list[dict[str, Any]] = []
    taken: list[tuple[float, float]] = []
    for x, text in _by_weight(marks):
        need = span * (0.012 + 0.0062 * len(text))
        flip = x + need > end
        low, high = (x - need, x) if flip else (x, x + need)
        if len(shown) < MAX_LABELS and all(high <= a or low >= b for a, b in taken):
            taken.append((low, high))
            shown.append(_label(look, text, x, flip, place))
    return shown


def _by_weight(marks: pd.DataFrame) -> list[tuple[float, str]]:
    """(x, label) of what somebody did, newest first; then of the newest of each crowded kind."""
    acts: list[tuple[float, str]] = []
    crowded: dict[str, tuple[float, str]] = {}
    for mark in reversed(records(marks)):
        kind = str(mark["kind"])
        named = (float(mark["x_s"]), label(kind, mark["detail"]))
        if kind in _CROWDED:
            crowded.setdefault(kind, named)
        else:
            acts.append(named)
    return acts + list(crowded.values())


def _label(look: Theme, text: str, x: float, flip: bool, place: dict[str, Any]) -> dict[str, Any]:
    return note(
        look,
        text,
        x=round(x, 3),
        xanchor="right" if flip else "left",
        yanchor="bottom",
        xshift=-3 if flip else 3,
        **place,
    )
