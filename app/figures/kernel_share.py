"""Where the time of a step goes: kernels split at their floor, then launch gaps, then the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.figures.data import Figure, significant
from app.figures.kernel_parts import Kernel, TimedStep, share
from app.figures.plane import Peaks
from app.theme import Theme, axis, hatched, layout, note
from app.units import count, duration

HEIGHT_PX = 172
_PLOT_PX, _CHAR_PX = 1070, 7.0
_LEFT_PX = 150
_ROWS = 3  # there is room for so many, and fewer stand as high
_BAR = 0.5  # of a row's height; the names of its kernels stand above it


@dataclass(slots=True)
class _Trace:
    """Bars that look alike, on all rows."""

    name: str
    marker: dict[str, Any]
    x: list[float] = field(default_factory=list)
    base: list[float] = field(default_factory=list)
    y: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


def kernel_share(steps: Sequence[TimedStep], peaks: Peaks | None, look: Theme) -> Figure:
    """One bar a phase, on an axis of percent of its own step. Without peaks no kernel is split."""
    traces = {trace.name: trace for trace in _traces(look)}
    notes: list[dict[str, Any]] = []
    for step in steps:
        _row(step, peaks, traces, notes, look)
    data = [_bars(trace) for trace in traces.values() if trace.x]
    names = [step.phase for step in steps]
    shape = layout(look, HEIGHT_PX, barmode="overlay", margin={"l": _LEFT_PX, "r": 6, "t": 4})
    shape["margin"]["b"] = 26
    texts = ["0", "25%", "50%", "75%", "100%"]
    shape["xaxis"] = axis(look, range=[0, 101], tickvals=[0, 25, 50, 75, 100], ticktext=texts)
    shape["yaxis"] = axis(
        look,
        type="category",
        categoryorder="array",
        categoryarray=names[::-1],
        tickvals=names,
        ticktext=[_title(step) for step in steps],
        tickfont={"size": 13, "color": look.text},
        range=[len(names) - _ROWS - 0.45, len(names) - 0.35],
        showgrid=False,
        showline=False,
        ticks="",
    )
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


def _traces(look: Theme) -> list[_Trace]:
    line = {"color": look.background, "width": 1}
    solid = {r: {"color": look.fill(r), "line": line} for r in ("memory", "compute", "overhead")}
    below = {
        role: {**solid[role], "pattern": hatched(look.fill(role), look.background)}
        for role in solid
    }
    return [
        _Trace("memory floor", solid["memory"]),
        _Trace("compute floor", solid["compute"]),
        _Trace("memory below roof", below["memory"]),
        _Trace("compute below roof", below["compute"]),
        _Trace("kernel", {"color": look.fill("padding"), "line": line}),
        _Trace("launch gaps", below["overhead"]),
        _Trace("host", solid["overhead"]),
    ]


def _row(
    step: TimedStep,
    peaks: Peaks | None,
    traces: dict[str, _Trace],
    notes: list[dict[str, Any]],
    look: Theme,
) -> None:
    at = 0.0
    for kernel in step.kernels:
        for name, length_s in _pieces(kernel, peaks):
            _add(traces[name], step, at, length_s, kernel.name)
            at += length_s
        _name(step, kernel.short, at - kernel.time_s, kernel.time_s, notes, look)
    for name, length_s in (("launch gaps", step.gaps_s), ("host", step.host_s)):
        _add(traces[name], step, at, length_s, name)
        _name(step, "gaps" if name == "launch gaps" else name, at, length_s, notes, look)
        at += length_s


def _pieces(kernel: Kernel, peaks: Peaks | None) -> list[tuple[str, float]]:
    """Names of traces, and seconds: what its roof allows, and what it took beyond."""
    if peaks is None:
        return [("kernel", kernel.time_s)]
    role, floor_s = kernel.role(peaks), min(kernel.floor_s(peaks), kernel.time_s)
    return [(f"{role} floor", floor_s), (f"{role} below roof", kernel.time_s - floor_s)]


def _add(trace: _Trace, step: TimedStep, at_s: float, length_s: float, what: str) -> None:
    if length_s <= 0:
        return
    part_of = length_s / step.t_step_s
    trace.x.append(significant(100 * part_of, 4))
    trace.base.append(significant(100 * at_s / step.t_step_s, 5))
    trace.y.append(step.phase)
    part = trace.name.split(" ", 1)[-1] if what != trace.name else ""
    trace.text.append(f"{what} {part}: {duration(length_s)}, {share(part_of)}".replace(" :", ":"))


def _bars(trace: _Trace) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": trace.name,
        "x": trace.x,
        "base": trace.base,
        "y": trace.y,
        "width": _BAR,
        "marker": trace.marker,
        "customdata": trace.text,
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _name(
    step: TimedStep,
    name: str,
    at_s: float,
    length_s: float,
    notes: list[dict[str, Any]],
    look: Theme,
) -> None:
    """Above the bar, where there is room for it."""
    full = f"{name} {share(length_s / step.t_step_s)}"
    room = length_s / step.t_step_s * _PLOT_PX - 4
    text = full if len(full) * _CHAR_PX < room else name
    if len(text) * _CHAR_PX >= room:
        return
    middle = 100 * (at_s + length_s / 2) / step.t_step_s
    place = {"x": significant(middle, 5), "y": step.phase, "yanchor": "bottom", "yshift": 11}
    notes.append(note(look, text, **place))


def _title(step: TimedStep) -> str:
    many = f"medians of {count(step.n)}" if step.n > 1 else f"step {count(step.step)}"
    return f"<b>{step.phase} {duration(step.t_step_s)}</b><br>{many}"
