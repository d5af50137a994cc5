"""The Roofline page: where steps are, and where one more sequence stops being free."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from app.figures.crossover import crossover, intensity
from app.figures.data import known
from app.figures.plane import Decode, Peaks
from app.figures.roofline import roofline
from app.figures.select import clicks
from app.panels import standing
from app.panels.live import waiting_view
from app.panels.markup import headline
from app.panels.modelled import took
from app.panels.view import RECORDED, Moment, Params, View
from app.panels.window import Window, picked_step, window
from app.theme import Theme
from app.units import count, percent, three
from engine.physics.roofline import DecodeModel, crossover_batch_with_kv
from telemetry.queries import live
from telemetry.queries import roofline as queries
from telemetry.reader import Reader

SPAN_S = 60.0


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """params: scale = "absolute" or "normalised"; first and last hold it, step was clicked."""
    run, shown = live.run(reader, run_id), window(reader, run_id, params, SPAN_S)
    if run is None or shown is None:
        return waiting_view()
    picked = picked_step(params, shown)
    point = live.newest(reader, run_id, shown.last_step if picked is None else picked)
    if point is None:
        return waiting_view()
    peaks = peaks_of(run)
    step = int(point["step"])
    decode = decode_of(queries.decode_costs(reader, run_id, step))
    named = picked is not None or not shown.follows
    return View(
        figures=_figures(reader, run, shown, point, peaks, decode, params, look),
        html={
            "headline": _headline(point, peaks, decode, f"Step {count(step)}: " if named else ""),
            "counter": standing.window_counter(reader, run_id, shown, moment),
            "window": standing.window_control(shown, moment),
        },
    )


def _figures(
    reader: Reader,
    run: dict[str, Any],
    shown: Window,
    point: dict[str, Any],
    peaks: Peaks | None,
    decode: Decode | None,
    params: Params,
    look: Theme,
) -> dict[str, dict[str, Any]]:
    """The plane and the crossover; their large point is the newest step, or the one held."""
    run_id = str(run["run_id"])
    ends = (None, None) if shown.follows else (shown.first_step, shown.last_step)
    trail = queries.trail(reader, run_id, int(point["step"]), ends[0])
    cloud = queries.cloud(reader, run_id, SPAN_S, *ends)
    measured = queries.measured_by_batch(reader, run_id, first=ends[0], last=ends[1])
    batch = max(1, int(point["decode_seqs"]) + int(point["padded_slots"]))
    at = (float(batch), float(point["t_step_s"])) if point["phase"] == "decode" else None
    normalised = params.get("scale") == "normalised"
    last = float(max(64, 2 ** math.ceil(math.log2(batch))))
    plane = roofline(cloud, trail, peaks, decode, look, normalised, live=shown.follows)
    return {
        "roofline": clicks(plane, shown.first_step, shown.last_step),
        "intensity": intensity(decode, peaks, batch, look, last),
        "crossover": crossover(decode, peaks, measured, at, look, last, took(run)),
    }


def peaks_of(run: dict[str, Any]) -> Peaks | None:
    """The run's peaks, None where the source reported none."""
    flops, bandwidth = known(run["peak_flops"]), known(run["peak_bandwidth"])
    if not flops or not bandwidth:
        return None
    return Peaks(flops, bandwidth, str(run["peaks_source"] or "source unknown"))


def decode_of(costs: pd.DataFrame) -> Decode | None:
    """The cost model of one decoding sequence, read off a counted step.

    Weights are in bytes as counted (embedding rows left to the step), so one "parameter" is a byte.
    """
    if costs.empty:
        return None
    row = costs.iloc[0]
    context = known(row["context_tokens"])
    if not context:
        return None
    model = DecodeModel(
        total_params=float(row["weight_bytes"]),
        active_params=float(row["matmul_flops"]) / 2,
        bytes_per_param=1.0,
        kv_bytes_per_token=float(row["kv_bytes"]) / context,
        attention_flops_per_position=float(row["attention_flops"]) / context,
    )
    return Decode(model, context)


def _headline(
    newest: dict[str, Any], peaks: Peaks | None, decode: Decode | None, named: str = ""
) -> str:
    """named: begins the sentence where it is about a step that is not simply the newest."""
    at = float(newest["intensity"])
    if peaks is None:
        strong = f"{named or 'This step: '}{three(at)} FLOP for each byte."
        return headline(strong, "Peaks are not reported by this source, so there is no roof.")
    reached = float(newest["flops"]) / float(newest["t_step_s"]) / peaks.roof(at)
    side = "memory-bound" if at < peaks.ridge else "compute-bound"
    away = peaks.ridge / at if at < peaks.ridge else at / peaks.ridge
    where = "left" if at < peaks.ridge else "right"
    strong = (
        f"{named}{three(at)} FLOP/byte, ×{three(away)} {where} of the ridge: {side}, "
        f"{percent(reached)} of its roof."
    )
    return headline(strong, _next(peaks, decode))


def _next(peaks: Peaks, decode: Decode | None) -> str:
    if decode is None:
        return ""
    cross = crossover_batch_with_kv(decode.model, decode.context, peaks.flops, peaks.bandwidth)
    if cross.batch is None:
        return f"No batch reaches the ridge: {cross.reason}."
    return f"Decode crosses it at batch {three(cross.batch)}."
