"""Which stretches of steps the two sides show, and how a pinned one stands in the address."""

from __future__ import annotations

import math
import re

from app.panels.interference_side import Stretch
from app.panels.view import Params, number
from app.panels.window import window
from telemetry.queries import interference as queries
from telemetry.queries import live
from telemetry.queries.windows import chosen_window
from telemetry.reader import Reader

SPAN_S = 6.0
BEFORE = 0.3
"""Share of an injection's window that lies before it."""
LIVE, INJECT, TIME, BUDGET = "live", "last inject", "over time", "token budget"
_PINNED = re.compile(r"(?P<run>[^:]+):(?P<first>\d+)-(?P<last>\d+)")


def span_of(params: Params) -> float:
    """Seconds that a side shows, from the address."""
    return number(params, "span", SPAN_S, 1.0, 60.0)


def pinned(reader: Reader, params: Params) -> Stretch | None:
    """Side A: steps of a run in the address as `a=run:first-last`; None without (valid) ones."""
    found = _PINNED.fullmatch(params.get("a", ""))
    if found is None:
        return None
    first, last = sorted((int(found["first"]), int(found["last"])))
    row = chosen_window(reader, found["run"], max(first, last - queries.MAX_STEPS + 1), last)
    if row is None:
        return None
    start_ns = int(row["start_ns"])
    span_s = math.ceil((int(row["end_ns"]) - start_ns) / 1e8) / 10
    return Stretch(found["run"], int(row["first_step"]), int(row["last_step"]), start_ns, span_s)


def pin(stretch: Stretch) -> str:
    """The address of a stretch as side A."""
    return f"{stretch.run_id}:{stretch.first}-{stretch.last}"


def shown(reader: Reader, run_id: str, params: Params, span_s: float) -> Stretch | None:
    """Side B: the steps that someone chose, those around the last injection, or the newest.

    span_s: what it takes unless someone chose. None before the first step.
    """
    chosen = "first" in params and "last" in params
    if params.get("show") == INJECT and not chosen:
        around = _around_inject(reader, run_id, span_s)
        if around is not None:
            return around
    found = window(reader, run_id, params, span_s)
    if found is None:
        return None
    first = max(found.first_step, found.last_step - queries.MAX_STEPS + 1)
    return Stretch(run_id, first, found.last_step, found.start_ns, found.span_s)


def _around_inject(reader: Reader, run_id: str, span_s: float) -> Stretch | None:
    """From before the last injected prompt until after its first token: it stands still."""
    inject, newest = queries.newest_inject(reader, run_id), live.newest(reader, run_id)
    if inject is None or newest is None:
        return None
    arrived_ns = int(inject["arrived_ns"])
    until_ns = int(inject["first_token_ns"] or max(int(newest["end_ns"]), arrived_ns))
    span_s = max(span_s, _round_up((until_ns - arrived_ns) / 1e9 / (0.9 - BEFORE)))
    start_ns = arrived_ns - int(BEFORE * span_s * 1e9)
    steps = queries.steps_between(reader, run_id, start_ns, start_ns + int(span_s * 1e9))
    if steps is None:
        return None
    return Stretch(
        run_id, max(steps[0], steps[1] - queries.MAX_STEPS + 1), steps[1], start_ns, span_s
    )


def _round_up(seconds: float) -> float:
    """Whole seconds, or tens of them: an axis that grows does so seldom."""
    return float(math.ceil(seconds)) if seconds < 20 else 10.0 * math.ceil(seconds / 10)
