"""A race: the same requests through several schedulers, drawn on one clock.

The browser replays it (`app/static/race.js`) from `layout.meta.race`: it shows what lies left of an
instant, and each note and line from the instant on that belongs to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import Figure, decimals, nice_ceiling, places
from app.figures.gantt import NOT_REPORTED, Window, heat_trace, lane_traces
from app.theme import CALLOUT_PX, Theme, axis, layout, note
from app.units import count, duration

HEIGHT_PX = 452
DASHES = ("dot", "solid", "dash", "dashdot")
"""Ink of each leg in turn, in the waiting strip and beside its numbers."""
_MARGIN = {"l": 56, "r": 8, "t": 20, "b": 40}
_TITLE_PX = 18
_WAIT = 0.14
_PLOT_PX = HEIGHT_PX - _MARGIN["t"] - _MARGIN["b"]


@dataclass(frozen=True, slots=True)
class Leg:
    """What one scheduler made of the workload. Times in seconds since its first request arrived.

    segments, waiting, hold: of `queries.scheduling`, on that clock; cells in place of segments
    where there are too many, each width_s wide. answered_s: when each request ended, in order.
    finish_s: the last token, None while it records; now_s: how far it has come.
    """

    mode: str
    slots: int
    requests: int
    segments: pd.DataFrame
    cells: pd.DataFrame | None
    width_s: float
    columns: int
    waiting: pd.DataFrame
    hold: dict[str, Any] | None
    answered_s: list[float]
    finish_s: float | None
    now_s: float
    reported: bool = True


def race(name: str, legs: list[Leg], modes: list[str], recording: bool, look: Theme) -> Figure:
    """legs: those that have begun; modes: all of them, so that each keeps its place."""
    end_s = _end(legs, recording)
    domains = _domains(len(modes))
    data: list[dict[str, Any]] = []
    notes: list[tuple[float, dict[str, Any]]] = []
    for place, leg in enumerate(legs):
        data += [_on(trace, place) for trace in _lanes(leg, end_s, look)]
        data.append(_waiting(leg, place, len(modes), end_s, look))
        notes += _holds(leg, place, end_s, look)
    lines = _lines(legs, domains, look)
    notes += _done(legs, modes, domains, end_s, look)
    shape = layout(look, HEIGHT_PX, barmode="overlay", margin=_MARGIN)
    shape |= _axes(legs, modes, domains, end_s, look)
    shape["shapes"] = [line for _, line in lines]
    titles = [_title(m, domains[i], look) for i, m in enumerate(modes)]
    shape["annotations"] = [*titles, *(n for _, n in notes)]
    shown = {"annotations": [0.0] * len(titles) + [t for t, _ in notes]}
    shown["shapes"] = [t for t, _ in lines]
    shape["meta"] = {"race": _meta(name, legs, recording, shown)}
    return {"data": data, "layout": shape}


def _meta(name: str, legs: list[Leg], recording: bool, shown: dict[str, Any]) -> dict[str, Any]:
    sides = [
        {
            "mode": leg.mode,
            "requests": leg.requests,
            "finish_s": leg.finish_s,
            "answered_s": places(leg.answered_s, decimals(leg.now_s)),
        }
        for leg in legs
    ]
    end_s = max((leg.now_s for leg in legs), default=0.0)
    return {"race": name, "recording": recording, "end_s": end_s, "legs": sides, "shown": shown}


def _end(legs: list[Leg], recording: bool) -> float:
    """Where the axis ends: round while it grows, so that it seldom moves."""
    longest = max((leg.now_s for leg in legs), default=0.0)
    return nice_ceiling(longest * 1.02) if recording or not longest else longest * 1.01


def _domains(panels: int) -> list[tuple[float, float]]:
    """Bottom and top of each leg's lanes, the first one highest; the waiting strip is below."""
    gap = _TITLE_PX / _PLOT_PX
    room = 1.0 - _WAIT - 0.035 - (panels - 1) * gap
    height = (room - gap) / panels
    tops = [1.0 - i * (height + gap) for i in range(panels)]
    return [(top - height, top) for top in tops]


def _on(trace: dict[str, Any], place: int) -> dict[str, Any]:
    return trace if place == 0 else {**trace, "yaxis": f"y{place + 1}"}


def _lanes(leg: Leg, end_s: float, look: Theme) -> list[dict[str, Any]]:
    if leg.cells is not None:
        return [heat_trace(leg.cells, 0.0, leg.width_s, leg.columns, look)]
    return lane_traces(leg.segments, Window(end_s, leg.slots), look)


def _waiting(leg: Leg, place: int, panels: int, end_s: float, look: Theme) -> dict[str, Any]:
    """How many wait; it holds until the leg has come to where it is."""
    fine, queue = decimals(end_s), leg.waiting
    last = queue["n_waiting"].tolist()[-1:]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"waiting, {leg.mode}",
        "x": [*places(queue["x_s"], fine), *(round(leg.now_s, fine) for _ in last)],
        "y": [*queue["n_waiting"].tolist(), *last],
        "yaxis": f"y{panels + 1}",
        "line": {
            "color": look.text,
            "width": 2.5,
            "shape": "hv",
            "dash": DASHES[place % len(DASHES)],
        },
        "hovertemplate": f"%{{y}} waiting<extra>{leg.mode}</extra>",
    }


def _title(mode: str, domain: tuple[float, float], look: Theme) -> dict[str, Any]:
    return note(
        look, f"<b>{mode}</b>", x=0, xref="paper", xanchor="left", y=domain[1], yref="paper",
        yanchor="bottom", borderpad=0,
    )  # fmt: skip


def _holds(leg: Leg, place: int, end_s: float, look: Theme) -> list[tuple[float, dict[str, Any]]]:
    """Slots that wait for others, from when their wait is over."""
    middle = {"x": 0.5, "xref": "paper", "y": leg.slots / 2 + 0.5, "yref": _yref(place)}
    if not leg.reported:
        return [(0.0, note(look, NOT_REPORTED, CALLOUT_PX, **middle))]
    if leg.hold is None:
        return []
    hold = leg.hold
    text = f"{int(hold['padded_slots'])} slots wait {duration(hold['hold_s'])} "
    text += f"for {int(hold['decode_seqs'])}"
    start, end = float(hold["start_s"]), float(hold["end_s"])
    x = min(max((start + end) / 2, 0.12 * end_s), 0.88 * end_s)
    back = {"bgcolor": look.background, "borderpad": 4}
    told = note(look, text, CALLOUT_PX, **{**middle, "x": round(x, 6), "xref": "x"}, **back)
    return [(end, told)]


def _yref(place: int) -> str:
    return "y" if place == 0 else f"y{place + 1}"


def _first(legs: list[Leg]) -> tuple[int, float] | None:
    """The leg that came in first, and when; None while fewer than two are there to compare."""
    done = [(leg.finish_s, place) for place, leg in enumerate(legs) if leg.finish_s is not None]
    if len(done) < 2:
        return None
    finish_s, place = min(done)
    return place, finish_s


def _lines(
    legs: list[Leg], domains: list[tuple[float, float]], look: Theme
) -> list[tuple[float, dict[str, Any]]]:
    """A finish line for each leg; that of the first crosses all panels."""
    first = _first(legs)
    out = []
    for place, leg in enumerate(legs):
        if leg.finish_s is None:
            continue
        crosses = first is not None and first[0] == place
        y0, y1 = (0.0, 1.0) if crosses else domains[place]
        ink = {"color": look.text, "width": 2, "dash": "dash" if crosses else "solid"}
        x = {"x0": leg.finish_s, "x1": leg.finish_s, "xref": "x"}
        out.append((leg.finish_s, {"type": "line", **x, "y0": y0, "y1": y1, "yref": "paper"}))
        out[-1][1]["line"] = ink
    return out


def _done(
    legs: list[Leg],
    modes: list[str],
    domains: list[tuple[float, float]],
    end_s: float,
    look: Theme,
) -> list[tuple[float, dict[str, Any]]]:
    """The sentence at the finish line of the first; what the others needed, at theirs."""
    first = _first(legs)
    out = []
    for place, leg in enumerate(legs):
        if leg.finish_s is None:
            continue
        if first is not None and first[0] == place:
            out.append((leg.finish_s, _sentence(leg, place, legs, end_s, look)))
        else:
            text = f"{leg.mode} done · {duration(leg.finish_s)}"
            spot = {"x": leg.finish_s, "xref": "x", "y": domains[place][1], "yref": "paper"}
            ends = {"xanchor": "right" if leg.finish_s > end_s / 4 else "left"}
            out.append((leg.finish_s, note(look, text, yanchor="bottom", **spot, **ends)))
    return out


def _sentence(leg: Leg, place: int, legs: list[Leg], end_s: float, look: Theme) -> dict[str, Any]:
    finish_s = leg.finish_s or 0.0
    others = [other for other in legs if other is not leg]
    text = f"<b>{leg.mode} done · {duration(finish_s)}</b><br>"
    text += f"all {count(len(leg.answered_s))} requests answered"
    for other in others:
        text += f",<br>{other.mode} has answered {_by(other, finish_s)}"
    right = finish_s < 0.7 * end_s
    side = {"xanchor": "left", "xshift": 10} if right else {"xanchor": "right", "xshift": -10}
    back = {"bgcolor": look.background, "borderpad": 4, "align": "left"}
    spot = {"x": finish_s, "xref": "x", "y": leg.slots / 2 + 0.5, "yref": _yref(place)}
    return note(look, text, CALLOUT_PX, **spot, **side, **back)


def _by(leg: Leg, instant_s: float) -> str:
    """How many of its requests a leg has answered by then."""
    return count(sum(at <= instant_s for at in leg.answered_s))


def _axes(
    legs: list[Leg],
    modes: list[str],
    domains: list[tuple[float, float]],
    end_s: float,
    look: Theme,
) -> dict[str, Any]:
    panels = len(modes)
    title = "seconds since the first request (all on one clock)"
    anchor = f"y{panels + 1}"
    axes = {"xaxis": axis(look, title, range=[0, end_s], anchor=anchor, nticks=12)}
    for place, domain in enumerate(domains):
        slots = legs[place].slots if place < len(legs) else max((g.slots for g in legs), default=1)
        name = "yaxis" if place == 0 else f"yaxis{place + 1}"
        axes[name] = _lane_axis(slots, domain, look, panels)
    most = max((float(g.waiting["n_waiting"].max()) for g in legs if len(g.waiting)), default=1.0)
    wait = {"domain": [0.0, _WAIT], "range": [0, nice_ceiling(max(most, 4.0) * 1.1)]}
    axes[f"yaxis{panels + 1}"] = axis(
        look, "waiting", **wait, nticks=3, showline=False, ticks="", anchor="x"
    )
    return axes


def _lane_axis(slots: int, domain: tuple[float, float], look: Theme, panels: int) -> dict[str, Any]:
    ticks = sorted({1, slots}) if panels > 3 or slots < 5 else sorted({1, (slots + 1) // 2, slots})
    return axis(
        look, "slot", domain=list(domain), range=[slots + 0.5, 0.5], tickvals=ticks, anchor="x",
        showgrid=False, showline=False, ticks="",
    )  # fmt: skip
