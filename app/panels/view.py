"""What a page shows at one moment: a pure function of a snapshot makes it, the browser draws it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.theme import Theme
from telemetry.reader import Reader

Params = Mapping[str, str]


@dataclass(slots=True)
class View:
    """Figures (plotly) and fragments of HTML, each by the id of its place on the page."""

    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    html: dict[str, str] = field(default_factory=dict)


Panels = Callable[[Reader, str, Params, Theme], View]


def number(params: Params, name: str, default: float, low: float, high: float) -> float:
    """A number from a query string, within limits; the default where it is none."""
    try:
        value = float(params.get(name, default))
    except ValueError:
        return default
    return min(max(value, low), high) if value == value else default
