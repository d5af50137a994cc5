"""The Scheduling page: who held which slot, what was padding, who waited."""

from __future__ import annotations

from typing import Any

import pandas as pd

from app.figures.data import known, records
from app.figures.gantt import Window, gantt, heat
from app.figures.select import by_step, by_time
from app.panels import standing
from app.panels.live import waiting_view
from app.panels.markup import headline, legend, numbers
from app.panels.view import RECORDED, Moment, Params, View, number
from app.panels.window import Window as Held
from app.panels.window import window
from app.theme import Theme
from app.units import count, duration, percent, three
from telemetry.queries import live
from telemetry.queries import scheduling as queries
from telemetry.reader import Reader


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """params: span (seconds), rows = "slot" or "request", x = "time" or "steps".

    first and last hold it at those steps.
    """
    shown = window(reader, run_id, params, number(params, "span", 20.0, 1.0, 600.0))
    if shown is None:
        return waiting_view()
    end_ns, span = shown.end_ns, shown.span_s
    summary = queries.summary(reader, run_id, end_ns, span)
    marks = live.marks(reader, run_id, end_ns, span, None if shown.follows else end_ns)
    held = live.first(queries.longest_hold(reader, run_id, end_ns, span))
    return View(
        figures={"gantt": _gantt(reader, run_id, shown, params, held, marks, look)},
        html={
            "headline": _headline(summary, held, _changes(summary, marks)),
            "numbers": _side(summary),
            "counter": standing.window_counter(reader, run_id, shown, moment),
            "window": standing.window_control(shown, moment),
        },
    )


def _gantt(
    reader: Reader,
    run_id: str,
    shown: Held,
    params: Params,
    held: dict[str, Any] | None,
    marks: pd.DataFrame,
    look: Theme,
) -> dict[str, Any]:
    """A drag along it holds the window."""
    by = "request" if params.get("rows") == "request" else "slot"
    end_ns, span, steps = shown.end_ns, shown.span_s, params.get("x") == "steps"
    rows = queries.segments(reader, run_id, end_ns, span, by)
    queue = queries.waiting(reader, run_id, end_ns, span)
    covers = Window(
        span,
        queries.slots(reader, run_id, shown.last_step),
        by,
        steps,
        shown.first_step,
        shown.last_step,
        "the newest step" if shown.follows else f"the end of step {count(shown.last_step)}",
        reported=bool(len(rows)) or queries.reported(reader, run_id),
    )
    if len(rows) > queries.MAX_SEGMENTS:
        cells = queries.heat(reader, run_id, end_ns, span, by)
        return by_time(heat(cells, queue, marks, covers, queries.HEAT_COLUMNS, look), end_ns)
    figure = gantt(rows, queue, marks, held, covers, look)
    return by_step(figure) if steps else by_time(figure, end_ns)


_UNLIKE = (
    ("load", "the load"),
    ("max_batch", "max batch"),
    ("chunk_tokens", "the token budget"),
    ("prefix_cache", "the prefix cache"),
    ("kv_blocks", "the KV cache"),
)
_LEGEND = (
    ("prefill", "prefill", ""),
    ("decode", "decode", ""),
    ("padding", "padding", "hatch"),
    ("lost", "recomputed", ""),
    ("decode", "held by others' prefill", "outline"),
    ("idle", "idle", "outline"),
)


_AT_ONCE = "No slot-step is padding: a finished sequence frees its slot at once."
_UNPADDED = {
    "continuous": _AT_ONCE,
    "chunked": _AT_ONCE,
    "no-batching": _AT_ONCE,
    "static": "No slot-step is padding so far: padding begins when a sequence of a batch finishes.",
}


def _side(summary: pd.DataFrame) -> str:
    """Numbers of the newest two schedulers of the window, and what the colours mean."""
    groups = "".join(_numbers(r) for r in records(summary.head(2)))
    return f'<div class="side">{groups}{legend(_LEGEND)}</div>'


def _numbers(row: dict[str, Any]) -> str:
    facts = [
        (f"{three(row['tokens_per_s'])} tok/s", f"{count(row['steps'])} steps"),
        _waste(row),
        (duration(known(row["worst_ttft_s"])), "worst TTFT"),
    ]
    return numbers(str(row["scheduler"]), facts)


def _waste(row: dict[str, Any]) -> tuple[str, str]:
    """What gained nothing: padding, or where there is none, what preemption made it recompute."""
    if row["recomputed_tokens"] and not row["padded_slot_fraction"]:
        return count(row["recomputed_tokens"]), "tokens recomputed"
    return percent(row["padded_slot_fraction"]), "slot-steps padded"


def _changes(summary: pd.DataFrame, marks: pd.DataFrame) -> str | None:
    """What changed beside the scheduler while the newest two ran: then they do not compare."""
    first = summary.head(2)["first_step"].min()
    kinds = set(marks[marks["step"] >= first]["kind"])
    names = [name for kind, name in _UNLIKE if kind in kinds]
    return " and ".join(names) or None


def _headline(summary: pd.DataFrame, held: dict[str, Any] | None, changes: str | None) -> str:
    rows = records(summary)
    if not rows:
        return headline("No step in this window.")
    if len(rows) > 1 and rows[1]["tokens_per_s"] > 0:
        return _compared(rows[0], rows[1], changes)
    now = rows[0]
    rate = f"{now['scheduler']}: {three(now['tokens_per_s'])} tokens/s."
    if held and now["padded_slot_fraction"] > 0:
        waits = f"{int(held['padded_slots'])} slots wait {duration(held['hold_s'])} for"
        what = f"{percent(now['padded_slot_fraction'])} of its slot-steps are padding"
        return headline(rate, f"{what}: {waits} {int(held['decode_seqs'])}.")
    if now["preemptions"]:
        times = "preemption" if now["preemptions"] == 1 else "preemptions"
        lost = f"{count(now['recomputed_tokens'])} tokens were computed again"
        return headline(rate, f"KV blocks ran out: {count(now['preemptions'])} {times}, {lost}.")
    return headline(rate, _UNPADDED.get(str(now["scheduler"]), "No slot-step is padding."))


def _compared(now: dict[str, Any], before: dict[str, Any], changes: str | None) -> str:
    both = (
        f"{before['scheduler']} {three(before['tokens_per_s'])} tokens/s, "
        f"{now['scheduler']} {three(now['tokens_per_s'])}"
    )
    if changes:
        return headline(f"{both}.", f"No comparison: {changes} changed in this window.")
    strong = f"{both} (×{three(now['tokens_per_s'] / before['tokens_per_s'])})."
    padded = max((before, now), key=lambda r: float(r["padded_slot_fraction"]))
    if not padded["padded_slot_fraction"]:
        return headline(strong, "Neither pads.")
    share = percent(padded["padded_slot_fraction"])
    return headline(strong, f"{share} of {padded['scheduler']}'s slot-steps were padding.")
