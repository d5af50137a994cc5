"""The race on the Scheduling page: what every scheduler made of the same requests."""

from __future__ import annotations

import json
from html import escape
from typing import Any
from weakref import WeakKeyDictionary

import pandas as pd

from app.figures.data import known, records
from app.figures.race import DASHES, Leg, race
from app.panels.markup import empty, headline, legend, numbers
from app.panels.view import RECORDED, Moment, Params, View
from app.theme import Theme
from app.units import count, duration, percent, three
from telemetry.queries import live, scheduling
from telemetry.queries import race as queries
from telemetry.reader import Reader

_LEGEND = (
    ("prefill", "prefill", ""),
    ("decode", "decode", ""),
    ("padding", "padding", "hatch"),
    ("lost", "recomputed", ""),
    ("decode", "held by others' prefill", "outline"),
)
_NONE = headline("No race in this run.", "Run one: each scheduler gets the same requests.")
_LEGS_KEPT = 16
_STYLES = {"solid": "solid", "dot": "dotted", "dash": "dashed", "dashdot": "double"}


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """params: race, the name of one; else the newest of the run."""
    race_row = _chosen(records(queries.races(reader, run_id)), params.get("race"))
    if race_row is None:
        return _none(reader, run_id, moment)
    rows = records(queries.legs(reader, run_id, race_row["race"]))
    modes = [str(mode) for mode in race_row["modes"]]
    recording = moment.is_live and race_row["ending"] is None
    if not rows:
        return _nothing_yet(race_row, modes, recording)
    legs = [_kept(reader, run_id, race_row, row) for row in rows]
    figure = race(str(race_row["race"]), legs, modes, recording, look)
    return View(
        figures={"race": figure},
        html={
            "headline": _headline(race_row, rows, modes, recording),
            "numbers": _side(rows, modes),
            "counter": _steps(rows),
            "window": "as recorded",
        },
    )


def _chosen(rows: list[dict[str, Any]], name: str | None) -> dict[str, Any] | None:
    """The race of that name, else the newest; None where the run has none that can be drawn."""
    usable = []
    for row in rows:
        modes = _names(row["modes"])
        if modes:
            usable.append({**row, "modes": modes})
    named = [row for row in usable if row["race"] == name]
    found = named or usable
    return found[-1] if found else None


def _names(modes: Any) -> list[str]:
    if isinstance(modes, str):
        modes = json.loads(modes)
    return [str(mode) for mode in modes] if modes is not None and len(modes) else []


def _none(reader: Reader, run_id: str, moment: Moment) -> View:
    what = (
        "Run race sends one seeded workload through one scheduler after the other, in this engine, "
        "and draws them on one clock. What ran before goes on afterwards."
        if moment.is_live
        else "Nobody raced schedulers in this run. Choose the live run, and run one there."
    )
    newest = live.newest(reader, run_id)
    html = {"headline": _NONE if moment.is_live else headline("No race in this run.")}
    if newest is not None:
        html["counter"] = f"step {count(newest['step'])}"
    return View(html={**html, "blank": empty("No race yet", what)})


def _nothing_yet(race_row: dict[str, Any], modes: list[str], recording: bool) -> View:
    what = f"{' and '.join(modes)}, one after the other, on the same requests."
    if not recording:
        what = "It ended before its first request arrived."
    html = {"headline": _headline(race_row, [], modes, recording), "counter": _steps([])}
    return View(html={**html, "window": "as recorded", "blank": empty("Nothing raced yet", what)})


# --- one leg ---

# What has ended is not read again while the next leg records; a reader belongs to one store.
_legs: WeakKeyDictionary[Reader, dict[tuple[Any, ...], Leg]] = WeakKeyDictionary()


def _kept(reader: Reader, run_id: str, race_row: dict[str, Any], row: dict[str, Any]) -> Leg:
    if not row["ended"]:
        return _leg(reader, run_id, row)
    made = _legs.setdefault(reader, {})
    found = ("tokens", "answered", "requests", "makespan_s", "last_step")
    key = (run_id, race_row["race"], row["leg"], *(row[name] for name in found))
    if key not in made:
        if len(made) >= _LEGS_KEPT:
            made.clear()
        made[key] = _leg(reader, run_id, row)
    return made[key]


def _leg(reader: Reader, run_id: str, row: dict[str, Any]) -> Leg:
    """Everything of a leg on the clock that starts with its first request and stops in pauses."""
    origin, now = int(row["origin_ns"]), known(row["now_ns"])
    until = origin if now is None else max(int(now), origin)
    clock = _Clock(origin, queries.pauses(reader, run_id, origin, until))
    span = (until - origin) / 1e9
    lanes = scheduling.segments(reader, run_id, until, span)
    crowded = len(lanes) > scheduling.MAX_SEGMENTS
    hold = live.first(scheduling.longest_hold(reader, run_id, until, span))
    finish = known(row["makespan_s"]) if row["ended"] else None
    ends = queries.answered(reader, run_id, int(row["start_ns"]), int(row["until_ns"]))
    now_s = max(clock.at(until), finish or 0.0)
    return Leg(
        mode=str(row["mode"]),
        slots=int(known(row["batch_slots"]) or 1),
        requests=int(row["requests"]),
        segments=_placed(lanes, clock, until),
        cells=scheduling.heat(reader, run_id, until, span) if crowded else None,
        width_s=now_s / scheduling.HEAT_COLUMNS,
        columns=scheduling.HEAT_COLUMNS,
        waiting=_placed(scheduling.waiting(reader, run_id, until, span), clock, until),
        hold=_hold(hold, clock, until),
        answered_s=[clock.at(at) for at in ends],
        finish_s=finish,
        now_s=now_s,
        reported=bool(len(lanes)) or now is None,
    )


class _Clock:
    """Instants as seconds since the first request, without the time paused."""

    def __init__(self, origin_ns: int, pauses: list[tuple[int, int]]) -> None:
        self._origin, self._pauses = origin_ns, pauses

    def at(self, t_ns: int) -> float:
        paused = sum(
            max(min(end, t_ns) - max(start, self._origin), 0) for start, end in self._pauses
        )
        return (t_ns - self._origin - paused) / 1e9

    def place(self, x_s: float, end_ns: int) -> float:
        """Of seconds relative to end_ns, as the queries have them."""
        return self.at(end_ns + round(x_s * 1e9))


def _placed(rows: pd.DataFrame, clock: _Clock, end_ns: int) -> pd.DataFrame:
    columns = [c for c in ("x_s", "start_s", "end_s") if c in rows]
    return rows.assign(**{c: [clock.place(x, end_ns) for x in rows[c]] for c in columns})


def _hold(hold: dict[str, Any] | None, clock: _Clock, end_ns: int) -> dict[str, Any] | None:
    if hold is None:
        return None
    return {**hold, **{c: clock.place(float(hold[c]), end_ns) for c in ("start_s", "end_s")}}


# --- words ---


def _headline(
    race_row: dict[str, Any], rows: list[dict[str, Any]], modes: list[str], recording: bool
) -> str:
    if recording:
        return _recording(race_row, rows, modes)
    done = [row for row in rows if row["ended"] and known(row["makespan_s"])]
    if race_row["ending"] != "done" or len(done) < 2:
        why = race_row["reason"] or "the recording has no end of it"
        return headline("This race did not finish:", f"{why}. What was recorded is below.")
    return _compared(race_row, done)


def _recording(race_row: dict[str, Any], rows: list[dict[str, Any]], modes: list[str]) -> str:
    if not rows:
        return headline("A race is about to begin:", "what still runs is answered first.")
    now, then = rows[-1], modes[len(rows) :]
    asked, took = int(known(race_row["requests"]) or now["requests"]), known(now["makespan_s"])
    told = f"Recording {now['mode']}: {count(now['answered'])} of {count(asked)} requests"
    if took:
        told += f" in {duration(took)}"
    rest = f"Then {' and '.join(then)}, on the same requests." if then else ""
    return headline(f"{told}.", rest)


def _compared(race_row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Who was faster by how much, and what the slots of the other did."""
    rows = sorted(rows, key=lambda row: -float(row["makespan_s"]))
    took = ", ".join(f"{row['mode']} {duration(row['makespan_s'])}" for row in rows)
    factor = _factor(rows[-1], rows[0], alone=len(rows) == 2)
    asked = f"Same {count(rows[0]['requests'])} requests, {count(race_row['slots'])} slots"
    waste = max(rows, key=lambda row: known(row["padded_slot_fraction"]) or 0.0)
    share = known(waste["padded_slot_fraction"])
    rest = f"{percent(share)} of {waste['mode']}'s slot-steps padded." if share else ""
    rest = rest if len(rows) == 2 else ""  # beside the charts, where three names fill the line
    return headline(f"{asked}: {took}{factor}.", rest)


def _factor(fast: dict[str, Any], slow: dict[str, Any], *, alone: bool) -> str:
    """By how much the last that is named was faster than the first; "" where it hardly was."""
    times = float(slow["makespan_s"]) / float(fast["makespan_s"])
    than = "" if alone else f" than {slow['mode']}"
    return f" (×{three(times)} faster{than})" if times >= 1.01 else ""


def _steps(rows: list[dict[str, Any]]) -> str:
    return f"{count(sum(known(row['steps']) or 0 for row in rows))} steps"


def _side(rows: list[dict[str, Any]], modes: list[str]) -> str:
    """The same four numbers for each leg, in the order of the panels, and the legend."""
    small = " small" if len(modes) > 2 else ""
    groups = "".join(_numbers(row, place) for place, row in enumerate(rows))
    lost = any(known(row["recomputed_tokens"]) for row in rows)
    colours = [entry for entry in _LEGEND if lost or entry[0] != "lost"]
    return f'<div class="side race{small}">{groups}{legend(colours)}</div>'


def _numbers(row: dict[str, Any], place: int) -> str:
    """With the ink that the leg has in the waiting strip."""
    recomputed = known(row["recomputed_tokens"])
    facts = [
        (f"{three(known(row['tokens_per_s']))} tok/s", f"{count(known(row['steps']))} steps"),
        (duration(known(row["makespan_s"])), "makespan"),
        (percent(known(row["padded_slot_fraction"])), "slot-steps padded"),
        (duration(known(row["worst_ttft_s"])), "worst TTFT"),
    ]
    if recomputed:
        facts.append((count(recomputed), "tokens recomputed"))
    style = _STYLES[DASHES[place % len(DASHES)]]
    ink = f'<i class="ink" style="border-top-style:{style}"></i>'
    mode = str(row["mode"])
    return f'<section data-mode="{escape(mode)}">{ink}{numbers(mode, facts)}</section>'
