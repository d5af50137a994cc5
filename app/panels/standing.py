"""How an engine stands that does not run now: paused, or idle; a recorded run is neither."""

from __future__ import annotations

from typing import Any

from app.panels.markup import headline
from app.panels.view import Moment
from app.panels.window import Window
from app.units import count, duration
from telemetry.queries import live as queries
from telemetry.reader import Reader

IDLE_S = 1.0


def idle_s(reader: Reader, run_id: str, end_ns: int, moment: Moment) -> float | None:
    """Seconds for which nothing has run, None while something runs or may go on.

    A long step is no idleness: as long as a request waits or runs, the engine is at work.
    """
    still_s = moment.still_s(end_ns)
    if moment.paused or still_s <= IDLE_S or queries.busy(reader, run_id):
        return None
    return still_s


def sentence(newest: dict[str, Any], still_s: float | None, moment: Moment) -> str | None:
    """The headline of an engine that does not run now; None while it does."""
    if moment.paused:
        return headline(f"Paused at step {count(newest['step'])}.", _last_step(newest))
    if still_s is not None:
        return headline(f"Idle for {_ago(still_s)}.", f"Its last step: {_last_step(newest)}")
    return None


def counter(reader: Reader, run_id: str, newest: dict[str, Any], moment: Moment) -> str:
    """The step counter of pages whose headline is about a window or a step, not about now."""
    still_s = idle_s(reader, run_id, int(newest["end_ns"]), moment)
    now = "paused" if moment.paused else f"idle {_ago(still_s)}" if still_s else ""
    step = f"step {count(newest['step'])}"
    return f"{step} · {now}" if now else step


def window_counter(reader: Reader, run_id: str, shown: Window, moment: Moment) -> str:
    """As counter where the window follows the newest step; else the steps that somebody chose."""
    newest = queries.newest(reader, run_id) if shown.follows else None
    if newest is None:
        return f"steps {count(shown.first_step)} to {count(shown.last_step)}"
    return counter(reader, run_id, newest, moment)


def window_control(shown: Window, moment: Moment) -> str:
    """What the window does, below the counter; a held one has a button that lets it go."""
    if not shown.follows:
        return held(moment.is_live, f"held {duration(shown.span_s)}")
    seconds = f"{shown.span_s:g} s"
    return f"following · {seconds}" if moment.is_live else f"its last {seconds}"


def held(is_live: bool, what: str = "held") -> str:
    """That somebody holds the window, and the way back."""
    back = "follow" if is_live else "show its end"
    return f'{what} · <button type="button" data-window="follow">{back}</button>'


def _ago(still_s: float) -> str:
    """Whole seconds, or minutes and hours once they are many."""
    if still_s < 120:
        return f"{int(still_s)} s"
    return f"{int(still_s // 60)} min" if still_s < 7200 else f"{int(still_s // 3600)} h"


def _last_step(newest: dict[str, Any]) -> str:
    return f"{newest['scheduler']}, {made(newest)}"


def made(step: dict[str, Any]) -> str:
    """What one step made, and its time: "mixed: 40 prompt tokens, 7 decoded in 96.2 ms."."""
    parts = [
        (step["prefill_tokens"], "prompt tokens"),
        (step["decode_tokens"], "decoded"),
        (step["padded_slots"], "padded"),
        (step["prefix_hit_tokens"], "from the prefix cache"),
        (step["recomputed_tokens"], "recomputed"),
    ]
    all_of_it = ", ".join(f"{count(n)} {what}" for n, what in parts if n)
    return f"{step['phase']}: {all_of_it} in {duration(float(step['t_step_s']))}."
