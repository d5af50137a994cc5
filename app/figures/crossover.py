"""Batch against intensity, and batch against time: where adding a sequence stops being free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from app.figures.data import Figure, nice_ceiling, numbers, significant
from app.figures.other_roofs import Other
from app.figures.plane import Decode, Peaks
from app.theme import Theme, axis, layout, note, rgba
from app.units import three
from engine.physics.roofline import (
    Crossover,
    crossover_batch_with_kv,
    decode_compute_time_s,
    decode_intensity,
    decode_memory_time_s,
    intensity_asymptote,
)

INTENSITY_PX = 206
CROSSOVER_PX = 236
_TICKS = [2**i for i in range(11)]
LIGHTER = {"ticklabeloverflow": "allow"}
"""Plotly measures every label on every update to see whether it hangs over; these never do."""


def batches(last: float) -> list[float]:
    """Batches to draw a curve at, four to an octave, from 1 to last."""
    steps = max(1, math.ceil(4 * math.log2(max(last, 2))))
    return [2 ** (i / 4) for i in range(steps + 1)]


def batch_axis(look: Theme, title: str, last: float) -> dict[str, Any]:
    """A log2 axis of batches from 1 to last."""
    span = [math.log10(0.85), math.log10(last * 1.1)]
    ticks = {"tickvals": _TICKS, "ticktext": [str(t) for t in _TICKS]}
    return axis(look, title, type="log", range=span, **LIGHTER, **ticks)


def line(name: str, xs: list[float], ys: list[float], **line: Any) -> dict[str, Any]:
    """A curve over batch; more: of its line."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": numbers(xs),
        "y": numbers(ys),
        "line": {"width": 3, **line},
        "hovertemplate": f"{name}<br>batch %{{x:.3g}}: %{{y:.3g}}<extra></extra>",
    }


def dot(look: Theme, x: float, y: float, role: str = "decode") -> dict[str, Any]:
    """The point that is now."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "live",
        "x": [significant(x, 4)],
        "y": [significant(y, 4)],
        "marker": {"color": look.fill(role), "size": 14, "line": {"color": look.text, "width": 2}},
        "hovertemplate": "now: batch %{x}, %{y:.3g}<extra></extra>",
    }


def intensity(
    decode: Decode | None,
    peaks: Peaks | None,
    batch: float,
    look: Theme,
    last: float = 64,
    others: Sequence[Other] = (),
    unknown: str = "",
) -> Figure:
    """Intensity of a decode step over its batch at the current context, up to its KV asymptote.

    others: roofs beside the run's, with their ridges, and the curve of other weights dotted.
    unknown: what stands in the place of the curve where decode is None.
    """
    shape = layout(look, INTENSITY_PX, margin={"l": 60, "r": 8, "t": 24, "b": 40})
    shape["xaxis"] = batch_axis(look, "decode batch", last)
    notes = [heading(look, "Intensity over batch")]
    shape["annotations"] = notes
    if decode is None:
        shape["yaxis"] = axis(look, "FLOP/byte", range=[0, 1])
        notes.append(_in_place(look, unknown))
        return {"data": [], "layout": shape}
    xs = batches(last)
    cap = intensity_asymptote(decode.model, decode.context)
    data = [line("decode", xs, _intensities(decode, xs), color=look.decode)]
    data += _other_weights(decode, others, xs, look)
    highest = max(y for trace in data for y in trace["y"])
    near = cap if cap < 2.5 * data[0]["y"][-1] else 0.0
    # A ridge far over the curve would press it flat: it is told of instead.
    ridge = peaks.ridge if peaks and peaks.ridge < 3 * max(highest, near) else 0.0
    top = nice_ceiling(max(highest, near, ridge) * 1.18)
    shape["yaxis"] = axis(look, "FLOP/byte", range=[0, top], nticks=5)
    ridges = [("", peaks.ridge)] if peaks else []
    data += _ridges(
        ridges + [(f"{o.name} ", o.peaks.ridge) for o in others], top, last, look, notes
    )
    if near:
        dashed = {"color": look.cached, "dash": "dash"}
        data.append(line("KV cap", [0.85, last * 1.1], [cap] * 2, **dashed))
        notes.append(_on_line(look, f"KV caps this at {three(cap)} FLOP/byte", cap))
    elif math.isfinite(cap):
        notes.append(_on_line(look, f"↑ KV caps this at {three(cap)} FLOP/byte", top * 0.86))
    data.append(dot(look, batch, decode_intensity(decode.model, batch, decode.context)))
    return {"data": data, "layout": shape}


def _intensities(decode: Decode, xs: list[float]) -> list[float]:
    return [decode_intensity(decode.model, b, decode.context) for b in xs]


def _other_weights(
    decode: Decode, others: Sequence[Other], xs: list[float], look: Theme
) -> list[dict[str, Any]]:
    """Dotted: the same model with its weights in other bytes."""
    return [
        line(f"{o.name} weights", xs, _intensities(o.decode, xs), color=look.decode, dash="dot")
        for o in others
        if o.decode and not o.is_device and o.decode != decode
    ]


def _ridges(
    ridges: list[tuple[str, float]],
    top: float,
    last: float,
    look: Theme,
    notes: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """The run's own first; what lies above the axis is only told of, at the right."""
    data, above = [], []
    for name, ridge in ridges:
        if ridge < top:
            dash: dict[str, Any] = {"dash": "dash", "width": 2} if name else {}
            ends = [0.85, last * 1.1], [ridge] * 2
            data.append(line(f"{name}ridge", *ends, color=look.compute, **dash))
            notes.append(_ridge_name(look, name, ridge, last))
        else:
            above.append(f"{name}{three(ridge)}")
    if above:
        place = {"xref": "paper", "x": 1, "yref": "paper", "y": 1}
        text = f"↑ ridge {', '.join(above)}"
        notes.append(note(look, text, **place, xanchor="right", yanchor="bottom"))
    return data


def _ridge_name(look: Theme, name: str, ridge: float, last: float) -> dict[str, Any]:
    """The run's own at the left, others' at the right, where two near each other would collide."""
    text = f"{name}ridge {three(ridge)}"
    if not name:
        return _on_line(look, text, ridge)
    return note(look, text, x=math.log10(last), y=ridge, xanchor="right", yanchor="bottom")


def _in_place(look: Theme, text: str) -> dict[str, Any]:
    """Where nothing can be drawn."""
    place = {"xref": "paper", "x": 0.5, "yref": "paper", "y": 0.5}
    return note(look, text, 14, **place, xanchor="center", yanchor="middle")


def heading(look: Theme, text: str) -> dict[str, Any]:
    """A title inside the figure's top margin."""
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": 1}
    return note(look, f"<b>{text}</b>", 14, **place, xanchor="left", yanchor="bottom")


def _on_line(look: Theme, text: str, y: float) -> dict[str, Any]:
    return note(look, text, x=math.log10(0.9), y=y, xanchor="left", yanchor="bottom")


def crossover(
    decode: Decode | None,
    peaks: Peaks | None,
    measured: pd.DataFrame,
    now: tuple[float, float] | None,
    look: Theme,
    last: float = 64,
    took: str = "measured",
    unknown: str = "",
    weights: str = "",
) -> Figure:
    """Step time over batch, ms: weights alone, with KV, compute, and the measured medians.

    measured: rows of `queries.roofline.measured_by_batch`; now: (batch, t_step_s) of the newest.
    took: what the medians are called, which a cost model has not measured. unknown: what stands in
    the place of the curves where decode or the peaks are None. weights: which ones the curves are
    for, where that depends on the batch.
    """
    shape = layout(look, CROSSOVER_PX, margin={"l": 60, "r": 8, "t": 24, "b": 40})
    of = f"</b>, {weights}<b>" if weights else ""
    notes = [heading(look, f"What one more sequence costs{of}")]
    data: list[dict[str, Any]] = []
    times_ms = [float(t) * 1e3 for t in measured["t_step_s"]]
    if decode and peaks:
        data += _curves(decode, peaks, look, last)
        cross = crossover_batch_with_kv(decode.model, decode.context, peaks.flops, peaks.bandwidth)
        notes += regions(cross, look, last)
        times_ms += [v for trace in data for v in trace["y"]]
    elif unknown:
        notes.append(_in_place(look, unknown))
    data += _measured(measured, look, took)
    if now:
        data.append(dot(look, now[0], now[1] * 1e3))
        times_ms.append(now[1] * 1e3)
    shape["xaxis"] = batch_axis(look, "decode batch", last)
    shape["yaxis"] = ms_axis(look, times_ms)
    shape["annotations"] = notes
    return {"data": data, "layout": shape}


def ms_axis(look: Theme, times_ms: list[float], span: float = 300.0) -> dict[str, Any]:
    """A log axis of step times with room for words above them; what is under 1/span of the longest
    ends at its foot."""
    shown = [t for t in times_ms if t > 0] or [1.0, 10.0]
    floor = max(min(shown), max(shown) / span)
    ends = [math.log10(floor * 0.8), math.log10(nice_ceiling(max(shown) * 2.6))]
    digits = (1, 2, 5) if ends[1] - ends[0] < 3.5 else (1,)
    ticks = {"tickvals": [v * 10**p for p in range(-3, 7) for v in digits]}
    return axis(look, "step, ms", type="log", range=ends, **LIGHTER, **ticks)


def _curves(decode: Decode, peaks: Peaks, look: Theme, last: float) -> list[dict[str, Any]]:
    xs = batches(last)
    model, at = decode.model, decode.context
    weights = [model.read_bytes(b) / peaks.bandwidth * 1e3 for b in xs]
    memory = [decode_memory_time_s(model, b, at, peaks.bandwidth) * 1e3 for b in xs]
    compute = [decode_compute_time_s(model, b, at, peaks.flops) * 1e3 for b in xs]
    return [
        line("weights", xs, weights, color=look.memory, dash="dot", width=2),
        line("weights + KV", xs, memory, color=look.memory),
        line("math", xs, compute, color=look.compute),
    ]


def regions(
    cross: Crossover, look: Theme, last: float, name: str = "B* with KV"
) -> list[dict[str, Any]]:
    """Where one more sequence is nearly free, and from which batch on each one costs."""
    place = {"xref": "x", "yref": "paper", "y": 0.99, "yanchor": "top"}
    if cross.batch is None or cross.batch > last:
        why = "nearly free all the way: " if cross.batch else "no crossover: "
        more = f"math overtakes at {three(cross.batch)}" if cross.batch else "KV grows faster"
        return [note(look, why + more, 14, **place, x=math.log10(0.9), xanchor="left")]
    edge = math.log10(cross.batch)
    back = {"bgcolor": rgba(look.background, 0.7)}
    return [
        note(look, "nearly free ◂", 14, **place, x=edge, xanchor="right", xshift=-6, **back),
        note(look, "▸ each one costs", 14, **place, x=edge, xanchor="left", xshift=6, **back),
        note(
            look,
            f"{name} <b>{three(cross.batch)}</b>",
            14,
            **{**place, "y": 0.02, "yanchor": "bottom"},
            x=edge,
            xanchor="center",
            **back,
        ),
    ]


def _measured(measured: pd.DataFrame, look: Theme, took: str) -> list[dict[str, Any]]:
    if measured.empty:
        return []
    middle = measured["t_step_s"]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{took} median, P10–P90",
            "x": numbers(measured["batch"]),
            "y": numbers(middle, scale=1e3),
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": numbers(measured["high_s"] - middle, scale=1e3),
                "arrayminus": numbers(middle - measured["low_s"], scale=1e3),
                "color": look.decode,
                "thickness": 1.5,
                "width": 0,
            },
            "marker": {"color": look.decode, "size": 7, "line": {"width": 0}},
            "customdata": measured["n"].tolist(),
            "hovertemplate": "batch %{x}: %{y:.3g} ms<extra>median of %{customdata}</extra>",
        }
    ]
