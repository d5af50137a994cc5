"""The Kernels page over a run: a step split by kernel, and each kernel under the roofs."""

from __future__ import annotations

from collections.abc import Sequence

from app.figures.kernel_parts import TimedStep, timed_steps
from app.figures.kernel_roofline import kernel_roofline
from app.figures.kernel_share import kernel_share
from app.panels import kernels_table as table
from app.panels import standing
from app.panels.live import waiting_view
from app.panels.markup import empty, headline
from app.panels.modelled import is_modelled
from app.panels.roofline_cost import peaks_of
from app.panels.view import RECORDED, Moment, Params, View
from app.panels.window import Window, window
from app.theme import Theme
from app.units import count
from telemetry.queries import kernels as queries
from telemetry.queries import live
from telemetry.reader import Reader

SPAN_S = 60.0
PHASES = {"decode": "Decode", "mixed": "Mixed", "prefill": "Prefill"}
"""Values of the parameter `phase`, in the order of the bars, and their words."""


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """params: phase, whose kernels are under the roofs; first and last hold the window."""
    run, shown = live.run(reader, run_id), window(reader, run_id, params, SPAN_S)
    if run is None or shown is None:
        return waiting_view()
    steps = steps_of(reader, run_id, shown)
    if not steps:
        view = _nothing(reader, run_id, is_modelled(run), shown)
    else:
        step, peaks = _chosen(steps, params), peaks_of(run)
        busy = queries.device(reader, run_id, shown.start_ns, shown.end_ns)
        view = View(
            figures={
                "kernel-share": kernel_share(steps, peaks, look),
                "kernel-roofline": kernel_roofline(step, peaks, look),
            },
            html={
                "headline": table.sentence(step, peaks),
                "kernel-table": table.table(step, peaks),
                "device": table.device(busy, step, peaks),
            },
        )
    view.html["counter"] = standing.window_counter(reader, run_id, shown, moment)
    view.html["window"] = standing.window_control(shown, moment)
    return view


def steps_of(reader: Reader, run_id: str, shown: Window) -> list[TimedStep]:
    """What timed steps of each phase in the window took, in the order of PHASES."""
    ends = (shown.first_step, shown.last_step)
    steps = queries.timed_steps(reader, run_id, *ends)
    found = timed_steps(steps, queries.kernels(reader, run_id, *ends))
    return [found[phase] for phase in PHASES if phase in found]


def _chosen(steps: Sequence[TimedStep], params: Params) -> TimedStep:
    """Of the phase that was asked for, else of the first there is."""
    return next((s for s in steps if s.phase == params.get("phase")), steps[0])


def _nothing(reader: Reader, run_id: str, modelled: bool, shown: Window) -> View:
    if queries.has_samples(reader, run_id):
        what = "No step of this window had its kernels timed."
        why = (
            f"About one a second of each phase is: choose more than steps "
            f"{count(shown.first_step)} to {count(shown.last_step)}."
        )
    else:
        what = "Kernel times are not reported by this source."
        why = (
            "A cost model knows how long a step takes, and runs no kernel: choose a measured run."
            if modelled
            else "This run recorded no kernels: choose another, or let the live engine run."
        )
    return View(html={"headline": headline(what, why), "blank": empty(what, why)})
