"""Who held which place in the batch: merged segments, or a heatmap where there are too many."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple

import pandas as pd

from app.figures import marks as events
from app.figures.data import Figure, decimals, nice_ceiling, places
from app.theme import Theme, axis, hatched, layout, note
from app.units import count, duration

HEIGHT_PX = 500
PHASES = {"prefill": "prefill", "decode": "decode", "recompute": "lost", "padded": "padding"}
NOT_REPORTED = "Who held which slot is not reported by this source."
_LANES_DOMAIN = [0.25, 1.0]
_WAIT_DOMAIN = [0.0, 0.14]


@dataclass(frozen=True, slots=True)
class Window:
    """What the picture covers: by time (seconds before the newest step) or by step number.

    reported: whether the source tells who held which lane; else none is drawn as idle.
    """

    span_s: float
    lanes: int
    by: str = "slot"
    steps: bool = False
    first_step: int = 0
    last_step: int = 0
    end: str = "the newest step"
    reported: bool = True

    @property
    def ends(self) -> list[float]:
        if self.steps:
            return [self.first_step, max(self.last_step + 1, self.first_step + 10)]
        return [-self.span_s, 0]


def gantt(
    segments: pd.DataFrame,
    waiting: pd.DataFrame,
    marks: pd.DataFrame,
    hold: dict[str, Any] | None,
    window: Window,
    look: Theme,
) -> Figure:
    """segments, waiting, hold: from `queries.scheduling`; marks: from `queries.live.marks`."""
    rows = _lanes(segments, window)
    data = [_idle(rows, window, look)] if window.by == "slot" and window.reported else []
    data += _held_and_phases(rows, window, look)
    return _finish(data, rows, waiting, marks, hold, window, look)


def lane_traces(segments: pd.DataFrame, window: Window, look: Theme) -> list[dict[str, Any]]:
    """What ran in each lane, one trace per phase, and what others' prefill held; see `gantt`."""
    return _held_and_phases(_lanes(segments, window), window, look)


def _held_and_phases(rows: pd.DataFrame, window: Window, look: Theme) -> list[dict[str, Any]]:
    return [*(_phase(rows, p, window, look) for p in PHASES), _held(rows, window, look)]


def heat(
    cells: pd.DataFrame,
    waiting: pd.DataFrame,
    marks: pd.DataFrame,
    window: Window,
    columns: int,
    look: Theme,
) -> Figure:
    """cells: rows of `queries.scheduling.heat`; a cell shows the phase that took most of it."""
    lanes = sorted(cells["lane"].unique())
    trace = heat_trace(cells, -window.span_s, window.span_s / columns, columns, look)
    timed = Window(window.span_s, max(len(lanes), 1), window.by)
    rows = pd.DataFrame({"row": list(range(1, len(lanes) + 1)), "lane": lanes})
    return _finish([trace], rows, waiting, marks, None, timed, look)


def heat_trace(
    cells: pd.DataFrame, start_s: float, width_s: float, columns: int, look: Theme
) -> dict[str, Any]:
    """Cells of `queries.scheduling.heat`, bin 0 from start_s on, each width_s wide."""
    lanes = sorted(cells["lane"].unique())
    codes = {phase: i for i, phase in enumerate(PHASES)}
    index = {lane: i for i, lane in enumerate(lanes)}
    grid: list[list[int | None]] = [[None] * columns for _ in lanes]
    for lane, at, phase in cells[["lane", "bin", "phase"]].itertuples(index=False):
        if 0 <= at < columns:
            grid[index[lane]][at] = codes[phase]
    steps = len(codes)
    scale = []
    for i, role in enumerate(PHASES.values()):
        scale += [[i / steps, look.fill(role)], [(i + 1) / steps, look.fill(role)]]
    return {
        "type": "heatmap",
        "name": "phase",
        "z": grid,
        "x0": start_s + width_s / 2,
        "dx": width_s,
        "y0": 1,
        "dy": 1,
        "zmin": -0.5,
        "zmax": steps - 0.5,
        "colorscale": scale,
        "showscale": False,
        "ygap": 1,
        "hoverinfo": "skip",
    }


def _lanes(segments: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Add the row each lane is drawn on (1 = top), the place on x and the length there."""
    rows = segments.copy()
    if window.by == "slot":
        rows["row"] = rows["lane"] + 1
    else:
        rows["row"] = rows["lane"].rank(method="dense").astype(int) if len(rows) else rows["lane"]
    rows["x"] = rows["first_step"] if window.steps else rows["start_s"]
    end = rows["last_step"] + 1 if window.steps else rows["end_s"]
    rows["length"] = end - rows["x"]
    return rows


def _bars(rows: pd.DataFrame, name: str, window: Window) -> dict[str, Any]:
    fine = decimals(window.span_s) + 1
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": places(rows["x"], fine),
        "x": places(rows["length"], fine),
        "y": rows["row"].tolist(),
        "width": 0.8,
    }


def _phase(rows: pd.DataFrame, phase: str, window: Window, look: Theme) -> dict[str, Any]:
    mine = rows[rows["phase"] == phase]
    colour = look.fill(PHASES[phase])
    marker: dict[str, Any] = {"color": colour, "line": {"width": 0}}
    if phase == "padded":
        marker = {
            "color": colour,
            "pattern": hatched(colour, look.background),
            "line": {"width": 0},
        }
    took = mine["end_s"] - mine["start_s"]
    tells = zip(mine["request_id"], took, mine["tokens"], strict=True)
    return {
        **_bars(mine, "padding" if phase == "padded" else phase, window),
        "marker": marker,
        "text": [f"r-{int(r)} · {duration(t)} · {count(n)} tokens" for r, t, n in tells],
        "textposition": "none",
        "hovertemplate": f"%{{text}}<extra>{PHASES[phase]}</extra>",
    }


def _idle(rows: pd.DataFrame, window: Window, look: Theme) -> dict[str, Any]:
    """Outlines only, from the first thing in the window to its end: nothing was there to run."""
    start = float(rows["x"].min()) if len(rows) else window.ends[0]
    lanes = range(1, window.lanes + 1)
    length = window.ends[1] - start
    return {
        "type": "bar",
        "orientation": "h",
        "name": "idle",
        "base": [round(start, 4)] * window.lanes,
        "x": [round(length, 4)] * window.lanes,
        "y": list(lanes),
        "width": 0.8,
        "marker": {"color": "rgba(0,0,0,0)", "line": {"color": look.idle, "width": 1}},
        "hoverinfo": "skip",
    }


def _held(rows: pd.DataFrame, window: Window, look: Theme) -> dict[str, Any]:
    """Outlines where an admitted request got nothing while others' prefill ran."""
    pieces = pd.DataFrame(_held_pieces(rows), columns=["row", "x", "length"])
    return {
        **_bars(pieces, "held by others' prefill", window),
        "marker": {"color": look.background, "line": {"color": look.decode, "width": 1.5}},
        "hoverinfo": "skip",
    }


class _Bar(NamedTuple):
    """A segment as it is drawn; names of columns of `_lanes`."""

    row: int
    request_id: int
    phase: str
    first_step: int
    last_step: int
    x: float
    length: float


def _held_pieces(rows: pd.DataFrame) -> list[tuple[int, float, float]]:
    """(row, x, length) of what others' prefill covers of each gap of a request in its lane.

    Prompts that are computed again after a preemption hold others as much.
    """
    bars = [_Bar(*bar) for bar in zip(*(rows[name].tolist() for name in _Bar._fields), strict=True)]
    prompts = [bar for bar in bars if bar.phase in ("prefill", "recompute")]
    prompts.sort(key=lambda bar: bar.first_step)
    reach = list(accumulate((bar.last_step for bar in prompts), max))
    out: list[tuple[int, float, float]] = []
    for bar, ahead in _gaps(bars):
        covered = bar.x + bar.length
        for other in islice(prompts, bisect_right(reach, bar.last_step), None):
            if other.first_step >= ahead.first_step:
                break
            low, high = max(other.x, covered), min(other.x + other.length, ahead.x)
            if high > low and other.request_id != bar.request_id:
                out.append((int(bar.row), low, high - low))
                covered = high
    return out


def _gaps(bars: list[_Bar]) -> Iterator[tuple[_Bar, _Bar]]:
    """Bars between which a request had no row, and nobody else had its lane.

    Where it begins to recompute it had been preempted: it did not hold its place.
    """
    next_in_lane: dict[int, int] = {}
    following: dict[tuple[int, int], int] = {}
    for bar in sorted(bars, key=lambda bar: -bar.first_step):
        following[bar.row, bar.first_step] = next_in_lane.get(bar.row, -1)
        next_in_lane[bar.row] = bar.first_step
    ordered = sorted(bars, key=lambda bar: (bar.request_id, bar.first_step))
    for bar, ahead in pairwise(ordered):
        same = ahead.request_id == bar.request_id and ahead.row == bar.row
        kept = ahead.phase != "recompute" or bar.phase == "recompute"
        alone = ahead.first_step == following[bar.row, bar.first_step]
        if same and kept and alone and ahead.first_step > bar.last_step + 1:
            yield bar, ahead


def _finish(
    data: list[dict[str, Any]],
    rows: pd.DataFrame,
    waiting: pd.DataFrame,
    marks: pd.DataFrame,
    hold: dict[str, Any] | None,
    window: Window,
    look: Theme,
) -> Figure:
    lanes = int(max(window.lanes, rows["row"].max() if len(rows) else 1))
    most = nice_ceiling(max(float(waiting["n_waiting"].max()) if len(waiting) else 1.0, 4.0) * 1.1)
    data = [*data, _waiting(waiting, window, look)]
    shape = layout(look, HEIGHT_PX, barmode="overlay", margin={"l": 56, "r": 8, "t": 24, "b": 40})
    shape |= _axes(lanes, most, rows, window, look)
    place = {"yref": "paper", "y": 1.0}
    marks = _by_step(marks, window) if window.steps else marks
    data += events.lines(look, marks, 0, most, yaxis="y2")
    data += events.lines(look, marks, 0.5, lanes + 0.5)
    start, end = window.ends
    shape["annotations"] = events.labels(look, marks, end - start, end, **place)
    if not window.reported:
        middle = {"x": 0.5, "xref": "paper", "y": lanes / 2 + 0.5}
        shape["annotations"].append(note(look, NOT_REPORTED, 15, **middle))
    elif hold and not window.steps and window.by == "slot":
        shape["annotations"].append(_hold_note(hold, lanes, window, look))
    return {"data": data, "layout": shape}


def _by_step(marks: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Marks where the step after which they took effect ends; x_s then counts steps."""
    after = marks["step"].astype("Float64").fillna(-1) + 1
    placed = marks.assign(x_s=after.astype(float))
    return placed[placed["x_s"] >= window.first_step]


def _hold_note(hold: dict[str, Any], lanes: int, window: Window, look: Theme) -> dict[str, Any]:
    one = int(hold["decode_seqs"])
    text = f"{int(hold['padded_slots'])} slots wait {duration(hold['hold_s'])} for {one}"
    start, end = max(float(hold["start_s"]), window.ends[0]), float(hold["end_s"])
    middle = (start + end) / 2
    side = {"xanchor": "right" if middle > -0.12 * window.span_s else "center"}
    if middle < -0.88 * window.span_s:
        side = {"xanchor": "left"}
    back = {"bgcolor": look.background, "borderpad": 4}
    return note(look, text, 15, x=round(middle, 3), y=lanes / 2 + 0.5, yref="y", **side, **back)


def _waiting(waiting: pd.DataFrame, window: Window, look: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "waiting",
        "x": places(waiting["step"] if window.steps else waiting["x_s"], decimals(window.span_s)),
        "y": waiting["n_waiting"].tolist(),
        "yaxis": "y2",
        "line": {"color": look.text, "width": 2, "shape": "hv"},
        "hovertemplate": "%{y} waiting<extra></extra>",
    }


def _axes(
    lanes: int, most: float, rows: pd.DataFrame, window: Window, look: Theme
) -> dict[str, Any]:
    title = "step" if window.steps else f"seconds before {window.end}"
    ticks = sorted({1, *range(5, lanes + 1, 5), lanes}) if lanes > 6 else list(range(1, lanes + 1))
    if lanes > 40:
        ticks = sorted({1, *range(10, lanes + 1, 10)})
    ticks = [t for t in ticks if t == lanes or lanes - t > lanes / 24 or lanes <= 12]
    names = [str(t) for t in ticks]
    if window.by == "request" and len(rows):
        lane_of = dict(zip(rows["row"], rows["lane"], strict=True))
        names = [f"r-{int(lane_of[t])}" if t in lane_of else "" for t in ticks]
    lane_axis = axis(
        look,
        window.by,
        domain=_LANES_DOMAIN,
        range=[lanes + 0.5, 0.5],
        tickvals=ticks,
        ticktext=names,
        showgrid=False,
        showline=False,
        ticks="",
    )
    wait = axis(look, "waiting", domain=_WAIT_DOMAIN, range=[0, most], nticks=4, showline=False)
    x = axis(look, title, range=window.ends, anchor="y2", nticks=8)
    return {"xaxis": x, "yaxis": lane_axis, "yaxis2": wait | {"ticks": ""}}
