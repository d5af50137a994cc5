"""The Interference page: a pinned stretch of steps beside a live one, and who is to blame."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import pandas as pd

from app.figures.lanes import Side, lanes
from app.figures.select import by_time
from app.figures.tail import tail
from app.panels import interference_budget, standing
from app.panels import interference_side as sides
from app.panels import interference_text as text
from app.panels import interference_window as windows
from app.panels.interference_lanes import lanes as lanes_of
from app.panels.live import waiting_view
from app.panels.markup import empty, headline
from app.panels.view import RECORDED, Moment, Params, View
from app.panels.window import window
from app.theme import Theme
from app.units import count, duration, percent, three
from telemetry.queries import interference as queries
from telemetry.queries import live
from telemetry.reader import Reader

TAIL_S = 60.0


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """params: show (see interference_window), span (s), a (see `pinned`), budget (of the curve)."""
    newest = live.newest(reader, run_id)
    if newest is None:
        return waiting_view()
    if not queries.reported(reader, run_id)["tokens"] and newest["decode_tokens"]:
        return _unreported(reader, run_id, newest, moment)
    if params.get("show") == windows.BUDGET:
        view = interference_budget.curve(moment.replays, params, look)
    else:
        shown = _over_time if params.get("show") == windows.TIME else _compared
        view = shown(reader, run_id, params, look, newest)
    view.html["counter"] = _counter(reader, run_id, params, newest, moment)
    return view


def _counter(
    reader: Reader, run_id: str, params: Params, newest: dict[str, Any], moment: Moment
) -> str:
    """The step, or the steps that somebody holds."""
    held = window(reader, run_id, params, TAIL_S) if "first" in params else None
    if held is None:
        return standing.counter(reader, run_id, newest, moment)
    return standing.window_counter(reader, run_id, held, moment)


def _unreported(reader: Reader, run_id: str, newest: dict[str, Any], moment: Moment) -> View:
    what = "Token times are not reported by this source."
    why = "A gap lies between two tokens of a stream, so none can be measured."
    counter = standing.counter(reader, run_id, newest, moment)
    return View(
        html={"headline": headline(what, why), "blank": empty(what, why), "counter": counter}
    )


def _compared(
    reader: Reader, run_id: str, params: Params, look: Theme, newest: dict[str, Any]
) -> View:
    stretch_a = windows.pinned(reader, params)
    span_s = stretch_a.span_s if stretch_a else windows.span_of(params)
    stretch_b = windows.shown(reader, run_id, params, span_s)
    if stretch_b is None:
        return waiting_view()
    span_s = max(span_s, stretch_b.span_s)
    b = sides.found(reader, replace(stretch_b, span_s=span_s))
    a = _kept(reader, replace(stretch_a, span_s=span_s)) if stretch_a else None
    if a is not None:
        b = sides.with_ttft(reader, b)
    picture = _side(reader, b, "B" if a else "", _standing(params))
    pinned = _side(reader, a, "A", "pinned") if a else None
    both = [("A", a), ("B", b)] if a else [("", b)]
    figure = lanes(pinned, picture, look)
    view = View(
        figures={"interference": by_time(figure, b.stretch.start_ns, "xaxis2" if a else "xaxis")},
        html={
            "headline": _waits(reader, run_id, params, newest) or text.sentence(a, b),
            "blame": text.table(both),
        },
    )
    if _standing(params) == windows.INJECT:
        view.html["window"] = "stays at the last inject"
    return view


# A pinned stretch does not change: found once, it is kept for as long as its reader.
_FOUND: WeakKeyDictionary[Reader, dict[sides.Stretch, sides.Found]] = WeakKeyDictionary()
_SETTLED_NS = 5_000_000_000


def _kept(reader: Reader, stretch: sides.Stretch) -> sides.Found:
    """As sides.found; kept once all records of the stretch must have come."""
    kept = _FOUND.setdefault(reader, {})
    if stretch in kept:
        return kept[stretch]
    made = sides.with_ttft(reader, sides.found(reader, stretch))
    newest = live.newest(reader, stretch.run_id)
    end_ns = stretch.start_ns + int(stretch.span_s * 1e9)
    if newest is not None and int(newest["end_ns"]) > end_ns + _SETTLED_NS:
        kept.clear()
        kept[stretch] = made
    return made


def _standing(params: Params) -> str:
    if "first" in params and "last" in params:
        return "chosen steps"
    return windows.INJECT if params.get("show") == windows.INJECT else "newest"


def _side(reader: Reader, found: sides.Found, letter: str, standing_: str) -> Side:
    s, focus = found.stretch, found.focus
    covered = None
    if focus and focus.start_s is not None and focus.end_s is not None:
        covered = (focus.start_s, focus.end_s)
    injected = queries.injected(reader, s.run_id)
    drawn = lanes_of(found.window, found.gaps, injected, s.start_ns, s.span_s)
    missing = ""
    if not found.reported["sequence_steps"]:
        missing = "who shared a step is not reported by this source: no baseline, no blame"
    return Side(
        title=text.title(letter, found, standing_),
        span_s=s.span_s,
        gaps=found.gaps,
        lanes=drawn.speeds,
        lives=drawn.lives,
        bands=sides.bands(found),
        label=text.band_label(found),
        focus_s=covered,
        frozen=bool(focus and (focus.inflation or 0) >= text.FROZEN),
        worst=text.callout(found),
        baseline=text.baseline(found),
        missing=missing,
    )


def _waits(reader: Reader, run_id: str, params: Params, newest: dict[str, Any]) -> str | None:
    """While the injected prompt has not begun: why."""
    if params.get("show") != windows.INJECT:
        return None
    inject = queries.newest_inject(reader, run_id)
    if inject is None:
        return headline("Nothing was injected in this run yet.", "The newest steps are shown.")
    if inject["admitted_ns"] is not None or inject["finished_ns"] is not None:
        return None
    limit = {"sequences": "all slots are taken", "blocks": "the KV blocks are taken"}
    why = limit.get(str(newest["limit_bound"]), "it begins with the next step")
    return headline(f"The injected {count(inject['prompt_tokens'])}-token prompt waits: {why}.")


def _over_time(
    reader: Reader, run_id: str, params: Params, look: Theme, newest: dict[str, Any]
) -> View:
    shown = window(reader, run_id, params, TAIL_S)
    held = shown is not None and not shown.follows
    end_ns = shown.end_ns if shown else int(newest["end_ns"])
    seconds = queries.tail(reader, run_id, end_ns, TAIL_S)
    marks = live.marks(reader, run_id, end_ns, TAIL_S, end_ns if held else None)
    end = f"the end of step {count(shown.last_step)}" if shown and held else "the newest step"
    words = "A mean over seconds cannot show one long gap: read both curves together."
    view = View(
        figures={"interference": by_time(tail(seconds, marks, TAIL_S, look, end), end_ns)},
        html={
            "headline": _tail_sentence(seconds),
            "blame": f'<p class="aside">{words}</p>',
        },
    )
    if not held:
        view.html["window"] = f"the last {TAIL_S:g} s"
    return view


def _tail_sentence(seconds: pd.DataFrame) -> str:
    """Throughput's spread beside that of the worst gap, over seconds that have gaps."""
    ran = seconds[seconds["worst_s"].notna()].iloc[1:]
    if len(ran) < 3:
        return headline("Too few seconds with tokens to compare throughput with the tail.")
    rate = ran["tokens"]
    mean, worst = float(rate.mean()), ran["worst_s"]
    spread = percent(float(rate.std() / mean)) if mean else percent(None)
    strong = f"Throughput {three(mean)} tokens/s, ± {spread} from second to second."
    return text.long(
        strong,
        f"The worst gap of a second went from {duration(worst.min())} to {duration(worst.max())} "
        f"(×{three(float(worst.max() / worst.min()))}).",
    )
