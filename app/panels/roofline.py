"""The Roofline page: where steps are, and where one more sequence stops being free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from app.figures.crossover import crossover, intensity
from app.figures.other_roofs import Other
from app.figures.plane import Decode, Peaks
from app.figures.roofline import roofline
from app.figures.select import clicks
from app.panels import roofline_text as text
from app.panels import standing
from app.panels.live import waiting_view
from app.panels.modelled import took
from app.panels.roofline_compare import others
from app.panels.roofline_cost import config_of, decode_of, experts_of, peaks_of, spec_of
from app.panels.view import RECORDED, Moment, Params, View
from app.panels.window import Window, picked_step, window
from app.theme import Theme
from app.units import count
from telemetry.queries import live
from telemetry.queries import roofline as queries
from telemetry.reader import Reader

SPAN_S = 60.0


@dataclass(frozen=True, slots=True)
class Shown:
    """What both charts and the words are about.

    step: the newest, the last of a held window, or the one that was clicked. decoding: the newest
    decode-only step up to it (`queries.roofline.decode_costs`), empty before one.
    """

    run: dict[str, Any]
    window: Window
    step: dict[str, Any]
    decoding: dict[str, Any] | None
    peaks: Peaks | None
    decode: Decode | None
    others: list[Other]


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """params: scale = "absolute" or "normalised"; first and last hold it, step was clicked;
    compare_dtype and compare_device name roofs to draw beside the run's."""
    run, shown = live.run(reader, run_id), window(reader, run_id, params, SPAN_S)
    if run is None or shown is None:
        return waiting_view()
    picked = picked_step(params, shown)
    step = queries.selected(reader, run_id, shown.last_step if picked is None else picked)
    if step is None:
        return waiting_view()
    what = _shown(reader, run, shown, step, params)
    named = "" if shown.follows and picked is None else f"Step {count(step['step'])}: "
    counter = (
        standing.window_counter(reader, run_id, shown, moment)
        if named
        else standing.counter(reader, run_id, step, moment)  # without asking for the newest again
    )
    experts = experts_of(run, spec_of(config_of(run)))
    return View(
        figures=_figures(reader, what, params, look),
        html={
            "headline": text.sentence(step, what.peaks, what.decode, named),
            "why": text.explained(step, what.peaks, what.decode, experts, what.others),
            "counter": counter,
            "window": standing.window_control(shown, moment),
        },
    )


def _shown(
    reader: Reader, run: dict[str, Any], shown: Window, step: dict[str, Any], params: Params
) -> Shown:
    costs = queries.decode_costs(reader, str(run["run_id"]), int(step["step"]))
    peaks, decode = peaks_of(run), decode_of(costs, run)
    beside = others(run, peaks, decode, params)
    return Shown(run, shown, step, live.first(costs), peaks, decode, beside)


def _figures(reader: Reader, what: Shown, params: Params, look: Theme) -> dict[str, dict[str, Any]]:
    run_id, shown = str(what.run["run_id"]), what.window
    ends = (None, None) if shown.follows else (shown.first_step, shown.last_step)
    trail = queries.trail(reader, run_id, int(what.step["step"]), ends[0])
    cloud = queries.cloud(reader, run_id, SPAN_S, *ends)
    measured = queries.measured_by_batch(reader, run_id, first=ends[0], last=shown.last_step)
    plane = roofline(
        cloud,
        trail,
        what.peaks,
        what.decode,
        look,
        params.get("scale") == "normalised",
        live=shown.follows,
        others=what.others,
    )
    now = _now(what)
    batch = now[0] if now else 1.0
    last = float(max(64, 2 ** math.ceil(math.log2(batch))))
    return {
        "roofline": clicks(plane, shown.first_step, shown.last_step),
        "intensity": intensity(
            what.decode, what.peaks, batch, look, last, what.others, _unknown(what)
        ),
        "crossover": crossover(
            what.decode,
            what.peaks,
            measured,
            now,
            look,
            last,
            took(what.run),
            _unknown(what),
            _weights(what),
        ),
    }


def _weights(what: Shown) -> str:
    """Quantised weights of a real run are read by few rows only, others run on copies of them: the
    curves are of those that the step read."""
    quantised = what.run["backend"] in ("cpu", "cuda") and str(what.run["dtype"]).startswith("int")
    if not quantised or what.decoding is None:
        return ""
    return f"with the weights that batch {count(what.decoding['decode_seqs'])} reads"


def _unknown(what: Shown) -> str:
    """Why there is no curve over decode batches."""
    if what.decoding is None:
        return "no decode-only step yet"
    if what.decode is None:
        return "the context of its sequences is not reported by this source"
    return "" if what.peaks else "peaks are not reported by this source"


def _now(what: Shown) -> tuple[float, float] | None:
    """Batch and time of the selected step, or of the newest decode-only one up to it: with prompt
    tokens in it a step has no place on a curve over decode batches."""
    step = what.step
    if step["phase"] == "decode":
        rows = int(step["decode_seqs"] or 0) + int(step["padded_slots"] or 0)
        return float(max(1, rows)), float(step["t_step_s"])
    if what.decoding is None:
        return None
    return float(what.decoding["decode_seqs"]), float(what.decoding["t_step_s"])
