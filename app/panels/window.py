"""The stretch of steps that a page shows: the newest ones, or those that someone chose."""

from __future__ import annotations

from dataclasses import dataclass

from app.panels.view import Params
from telemetry.queries import windows
from telemetry.reader import Reader


@dataclass(frozen=True, slots=True)
class Window:
    """Steps first_step to last_step, both shown; it ends at end_ns (monotonic) and is span_s long.

    follows: it moves on with the newest step; else it stays where someone put it.
    """

    first_step: int
    last_step: int
    end_ns: int
    span_s: float
    follows: bool

    @property
    def start_ns(self) -> int:
        return self.end_ns - round(self.span_s * 1e9)


def window(reader: Reader, run_id: str, params: Params, span_s: float) -> Window | None:
    """From the address: `first` and `last`, step numbers; without both the newest span_s seconds.

    Numbers in the wrong order are put right, and those beyond the run's ends are cut to them.
    None before the first step.
    """
    chosen = _chosen(params)
    if chosen is None:
        found = windows.newest_window(reader, run_id, span_s)
    else:
        found = windows.chosen_window(reader, run_id, *chosen)
    if found is None:
        return None
    span = span_s if chosen is None else (found["end_ns"] - found["start_ns"]) / 1e9
    steps = int(found["first_step"]), int(found["last_step"])
    return Window(*steps, int(found["end_ns"]), span, follows=chosen is None)


def _chosen(params: Params) -> tuple[int, int] | None:
    try:
        first, last = int(params["first"]), int(params["last"])
    except (KeyError, ValueError):
        return None
    return min(first, last), max(first, last)


def picked_step(params: Params, shown: Window | None = None) -> int | None:
    """The step that someone clicked, from the address; nonsense is none.

    shown: as long as this window has it.
    """
    text = params.get("step", "")
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        return None
    step = int(text)
    return step if shown is None or shown.first_step <= step <= shown.last_step else None
