"""The Live page: anatomy of a step, the last 30 s of steps and tokens, tiles, and the requests."""

from __future__ import annotations

from typing import Any

import pandas as pd

from app.figures.anatomy import anatomy
from app.figures.data import known, records
from app.figures.select import by_time, clicks
from app.figures.strip import Picked, strip
from app.panels import live_held, live_stream, standing
from app.panels.live_lately import Lately, Stretch, lately
from app.panels.live_tiles import GAP_SPAN_S, Facts, cost, five, limit
from app.panels.markup import empty, headline, shares
from app.panels.modelled import took
from app.panels.view import RECORDED, Moment, Params, View
from app.panels.window import Window, picked_step, window
from app.theme import Theme
from app.units import count, duration, three
from telemetry.queries import live as queries
from telemetry.queries import live_bars
from telemetry.reader import Reader

SPAN_S = 30.0


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """The page for a run as it stands in the database, live or past.

    params: first and last hold the page at those steps, step is the one that was clicked.
    """
    run, shown = queries.run(reader, run_id), window(reader, run_id, params, SPAN_S)
    if run is None or shown is None:
        return waiting_view()
    picked = _picked(reader, run_id, params, shown)
    view = View({"strip": _strip(reader, run_id, shown, picked, look)})
    if moment.lead_only:
        view.html["counter"] = f"step {count(shown.last_step)}"
    elif shown.follows and picked is None:
        _now(view, reader, run, shown.last_step, look, moment)
    else:
        live_held.show(view, reader, run, shown, picked, look, moment)
    view.html["window"] = standing.window_control(shown, moment)
    return view


def _picked(reader: Reader, run_id: str, params: Params, shown: Window) -> dict[str, Any] | None:
    """The step that was clicked, as long as the window has it."""
    step = picked_step(params, shown)
    return None if step is None else queries.newest(reader, run_id, step)


def _now(
    view: View, reader: Reader, run: dict[str, Any], step: int, look: Theme, moment: Moment
) -> None:
    """What is true of the newest step."""
    run_id = str(run["run_id"])
    newest = queries.newest(reader, run_id, step)
    if newest is None:
        return
    end_ns = int(newest["end_ns"])
    medians = queries.anatomy(reader, run_id, step)
    pinned = step if moment.paused else None
    shown = _pinned(reader, run_id, medians, step) if moment.paused else medians
    view.figures["anatomy"] = anatomy(shown, look, took(run), picked=pinned)
    still_s = standing.idle_s(reader, run_id, end_ns, moment)
    at_ns = end_ns if still_s is None else moment.now_ns
    found = lately(reader, run, _last(at_ns, end_ns), moment)
    rate = None if found.tokens is None else float(found.seconds["tokens"].iloc[-1])
    stands = standing.sentence(newest, still_s, moment)
    view.html["headline"] = stands or _headline(newest, medians, rate)
    now = newest if still_s is None else {**newest, **_DRAINED}
    facts = _facts(now, rate, found, moment.paused)
    view.html["tiles"] = five(found.seconds, facts, known(run["tpot_slo_s"]))
    view.html["counter"] = f"step {count(newest['step'])}"
    live_stream.show(view, found.stream)
    if moment.paused:
        rows = records(queries.shares(reader, run_id, step))
        view.html["answer"] = shares(limit(newest), rows, cost=cost(newest))


def _pinned(reader: Reader, run_id: str, medians: pd.DataFrame, step: int) -> pd.DataFrame:
    """The step at which the engine stands in place of the median of its kind."""
    stands = queries.anatomy_of(reader, run_id, step, step)
    others: pd.DataFrame = medians[medians["phase"] != stands["phase"].iloc[0]]
    return pd.concat([others, stands], ignore_index=True)


def _last(at_ns: int, end_ns: int) -> Stretch:
    """The stretch that ends at at_ns; where nothing has run since end_ns, what ran until then is
    still listed."""
    start_ns, first_ns = queries.since_ns(at_ns, SPAN_S), queries.since_ns(at_ns, GAP_SPAN_S)
    return Stretch(start_ns, at_ns, 1.0, first_ns, queries.since_ns(end_ns, SPAN_S))


# An idle engine holds nothing, whatever its newest step held.
_DRAINED = {"n_running": 0, "n_waiting": 0, "limit_bound": "none", "kv_blocks_used": 0}


def waiting_view() -> View:
    """Before the first step."""
    text = "Type a prompt, or choose a workload and a number of streams."
    return View(
        html={
            "headline": headline("No step has run yet.", text),
            "blank": empty("Nothing runs yet", text),
            "counter": "",
        }
    )


def _strip(
    reader: Reader, run_id: str, shown: Window, picked: dict[str, Any] | None, look: Theme
) -> dict[str, Any]:
    """A drag over it, or a click on a bar, holds the window."""
    end_ns, span_s = shown.end_ns, shown.span_s
    steps = live_bars.steps(reader, run_id, end_ns, span_s)
    width = live_bars.bin_width(len(steps), steps.median_s, span_s)
    bars = live_bars.bars(steps, width)
    until_ns = None if shown.follows else end_ns
    marks = queries.marks(reader, run_id, end_ns, span_s, until_ns)
    end = "the newest step" if shown.follows else f"the end of step {count(shown.last_step)}"
    mark = _mark(picked, end_ns) if picked else None
    figure = by_time(strip(bars, marks, steps.median_s, span_s, width, look, mark, end), end_ns)
    return clicks(figure, shown.first_step, shown.last_step, "x")


def _mark(picked: dict[str, Any], end_ns: int) -> Picked:
    t_step_s = float(picked["t_step_s"])
    start_s = (int(picked["t_start_ns"]) - end_ns) / 1e9
    return Picked(int(picked["step"]), start_s + t_step_s / 2, t_step_s)


def _headline(newest: dict[str, Any], medians: pd.DataFrame, rate: float | None) -> str:
    running = int(newest["n_running"])
    streams = "1 stream" if running == 1 else f"{running} streams"
    step = next((r for r in records(medians) if r["phase"] == "decode"), None)
    if step is None:
        return headline(f"{streams}: {three(rate)} tokens/s.", "No decode-only step yet.")
    each = duration(float(step["t_step_s"]))
    strong = f"{newest['scheduler']}, {streams}: {three(rate)} tokens/s at {each} a step."
    return headline(strong, live_held.why(step))


def _facts(newest: dict[str, Any], rate: float | None, found: Lately, paused: bool) -> Facts:
    return Facts(
        tokens_per_s=0.0 if paused else rate,
        over="paused" if paused else "last second",
        facts={**newest, "running": newest["n_running"], "waiting": newest["n_waiting"]},
        recent=found.seconds.tail(int(GAP_SPAN_S)),
        most=False,
        worst=f"worst gap, {GAP_SPAN_S:g} s",
        served=found.served,
    )
