"""What a page shows at one moment: a pure function of a snapshot makes it, the browser draws it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.theme import Theme
from telemetry.reader import Reader

Params = Mapping[str, str]
Pieces = Callable[[Sequence[int]], list[str]]
"""Token ids of an output -> the text that each of them added."""


@dataclass(slots=True)
class View:
    """Figures (plotly) and fragments of HTML, each by the id of its place on the page."""

    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    html: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays that a page asked for: how far they are, then what came out, or why nothing can."""

    done: int = 0
    total: int = 0
    result: Mapping[str, Any] | None = None
    error: str | None = None

    @property
    def stage(self) -> tuple[int, bool, str | None]:
        """Changes as they go on."""
        return self.done, self.result is not None, self.error


@dataclass(frozen=True, slots=True)
class Moment:
    """What the database does not know of the run: whether it is live, and how it stands now.

    pieces: None where the run's tokenizer is not at hand. replays: those of what is shown.
    lead_only: only what leads is asked for, which shows the newest step; the page's other places
    keep what they show.
    """

    is_live: bool = False
    paused: bool = False
    now_ns: int = 0
    pieces: Pieces | None = None
    replays: Replays | None = None
    lead_only: bool = False

    def still_s(self, end_ns: int) -> float:
        """Seconds since the newest step ended; 0 for a recorded run, which has no now."""
        return max(0.0, (self.now_ns - end_ns) / 1e9) if self.is_live else 0.0


RECORDED = Moment()


class Panels(Protocol):
    """Makes the view of one page, from a snapshot of the database and a moment."""

    def __call__(
        self, reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = ..., /
    ) -> View: ...


class Still(Protocol):
    """Makes the view of a page that no run stands behind, from its address alone."""

    def __call__(self, params: Params, look: Theme, /) -> View: ...


def number(params: Params, name: str, default: float, low: float, high: float) -> float:
    """A number from a query string, within limits; the default where it is none."""
    try:
        value = float(params.get(name, default))
    except ValueError:
        return default
    return min(max(value, low), high) if value == value else default
