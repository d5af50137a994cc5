"""The Live page about steps that somebody holds, or about one of them that was clicked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.anatomy import anatomy
from app.figures.data import known, records
from app.panels import live_stream, standing
from app.panels.live_lately import Lately, Stretch, lately
from app.panels.live_tiles import Facts, cost, five, limit
from app.panels.markup import headline, shares
from app.panels.modelled import took
from app.panels.view import Moment, View
from app.panels.window import Window
from app.theme import Theme
from app.units import count, duration, percent, three
from telemetry.queries import live as queries
from telemetry.reader import Reader
from telemetry.views import FOREVER_NS

MOST_BINS = 30


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens per second, None where the source does not report them, and over what time."""

    tokens_per_s: float | None
    over: str


def show(
    view: View,
    reader: Reader,
    run: dict[str, Any],
    shown: Window,
    picked: dict[str, Any] | None,
    look: Theme,
    moment: Moment,
) -> None:
    """Fill all but the strip. Nothing here is about now."""
    run_id, ends = str(run["run_id"]), (shown.first_step, shown.last_step)
    facts = queries.stretch(reader, run_id, *ends)
    if facts is None:
        return
    step = int(picked["step"]) if picked else None
    medians = queries.anatomy_of(reader, run_id, *ends, step)
    view.figures["anatomy"] = anatomy(medians, look, took(run), held=True, picked=step)
    found = _lately(reader, run, shown, facts, moment)
    rate = _rate(found)
    _tiles(view, run, found, rate, facts)
    live_stream.show(view, found.stream)
    view.html["counter"] = standing.window_counter(reader, run_id, shown, moment)
    if picked is None:
        view.html["headline"] = _stretch(shown, facts, rate, medians)
    else:
        decode = queries.anatomy_of(reader, run_id, *ends)
        view.html["headline"] = sentence(picked, _of_phase(decode, "decode"))
        rows = records(queries.shares(reader, run_id, int(picked["step"])))
        if moment.paused or not shown.follows:
            named = count(picked["step"])
            view.html["answer"] = shares(limit(picked), rows, named, cost(picked))


def sentence(step: dict[str, Any], decode: dict[str, Any] | None) -> str:
    """One step in words: what it made, how long that took, and what of it was least possible.

    decode: the median decode step of the window, which it is compared with.
    """
    strong = f"Step {count(step['step'])}, {standing.made(step)}"
    return headline(strong, f"{_beside(step, decode)}{_least(step)}")


def _beside(step: dict[str, Any], decode: dict[str, Any] | None) -> str:
    if decode is None:
        return ""
    times = float(step["t_step_s"]) / float(decode["t_step_s"])
    return f"×{three(times)} the median decode step; "


def _least(step: dict[str, Any]) -> str:
    """The binding term alone, whatever it took."""
    memory, compute = known(step["t_memory_s"]), known(step["t_compute_s"])
    if memory is None or compute is None:
        return "peaks are not reported by this source."
    floor, what = (memory, "reading") if memory >= compute else (compute, "math")
    return f"{what} alone takes {duration(floor)}."


def why(step: dict[str, Any]) -> str:
    """What the median decode step is spent on; modelled floors against the measured time."""
    memory, compute = known(step["t_memory_s"]), known(step["t_compute_s"])
    if memory is None or compute is None:
        return "Peaks are not reported by this source."
    total = float(step["t_step_s"])
    if memory >= compute:
        return (
            f"Reading takes at least {duration(memory)} ({percent(memory / total)} of it), "
            f"the math {duration(compute)}."
        )
    return (
        f"The math takes at least {duration(compute)} ({percent(compute / total)} of it), "
        f"reading {duration(memory)}."
    )


def _stretch(shown: Window, facts: dict[str, Any], rate: Rate, medians: pd.DataFrame) -> str:
    first, last = count(shown.first_step), count(shown.last_step)
    steps = f"Step {first}" if first == last else f"Steps {first} to {last}"
    over = f"{three(rate.tokens_per_s)} tokens/s {rate.over}"
    decode = _of_phase(medians, "decode")
    strong = f"{steps}, {facts['schedulers']}: {over}."
    if decode is None:
        return headline(strong, "No decode-only step among them.")
    return headline(strong, f"A decode step took {duration(float(decode['t_step_s']))}.")


def _of_phase(medians: pd.DataFrame, phase: str) -> dict[str, Any] | None:
    return queries.first(medians[medians["phase"] == phase])


def _rate(found: Lately) -> Rate:
    """Emitted tokens over the stretch, its pauses left out."""
    over = f"over {duration(found.ran_s)}{' unpaused' if found.paused else ''}"
    if found.tokens is None or found.ran_s <= 0:
        return Rate(None, over)
    return Rate(found.tokens / found.ran_s, over)


def _lately(
    reader: Reader, run: dict[str, Any], shown: Window, facts: dict[str, Any], moment: Moment
) -> Lately:
    width_s = shown.span_s / min(MOST_BINS, max(1, int(facts["steps"]) // 2))
    ends = shown.start_ns, shown.end_ns
    until_ns = FOREVER_NS if shown.follows else shown.end_ns
    return lately(reader, run, Stretch(*ends, width_s, ends[0], ends[0], until_ns), moment)


def _tiles(
    view: View, run: dict[str, Any], found: Lately, rate: Rate, facts: dict[str, Any]
) -> None:
    bars = Facts(
        tokens_per_s=rate.tokens_per_s,
        over=rate.over,
        facts=facts,
        recent=found.seconds,
        most=True,
        worst="worst gap",
        served=found.served,
    )
    view.html["tiles"] = five(found.seconds, bars, known(run["tpot_slo_s"]))
