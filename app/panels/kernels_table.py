"""A step by kernel in words and numbers: the sentence, the table, and what "busy" does not say."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from app.figures.data import known
from app.figures.kernel_parts import Kernel, TimedStep, share
from app.figures.plane import Peaks
from app.panels.markup import headline
from app.units import count, duration, si, three

_HEAD = ("kernel", "calls", "time", "of step", "FLOP/byte", "rate", "of roof")


def sentence(step: TimedStep, peaks: Peaks | None) -> str:
    """The headline: where the step's time goes, and what takes most of it."""
    part = share(step.kernels_s / step.t_step_s)
    strong = f"{step.phase.capitalize()}: {part} of {duration(step.t_step_s)} is kernels"
    if peaks is not None:
        strong += f", at {share(step.floor_s(peaks) / step.kernels_s)} of their roof"
    rest = (
        f"Launch gaps {share(step.gaps_s / step.t_step_s)}, "
        f"host {share(step.host_s / step.t_step_s)}. {_longest(step)}"
    )
    return headline(f"{strong}.", rest)


def _longest(step: TimedStep) -> str:
    kernel = max(step.kernels, key=lambda k: k.time_s)
    return f"{kernel.short} takes most: {share(kernel.time_s / step.t_step_s)}."


def table(step: TimedStep, peaks: Peaks | None) -> str:
    """A row a kernel, then what of the step was none."""
    head = "".join(f"<th>{name}</th>" for name in _HEAD)
    rows = [_kernel(kernel, step, peaks) for kernel in step.kernels]
    rows += [_rest("launch gaps", step.gaps_s, step), _rest("host", step.host_s, step)]
    title = f"<b>{step.phase.capitalize()}</b> of {escape(step.rows)}"
    many = f" · medians of {count(step.n)} timed steps" if step.n > 1 else " · one timed step"
    return (
        f'<div class="ks"><h4>{title}{many}</h4><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _kernel(kernel: Kernel, step: TimedStep, peaks: Peaks | None) -> str:
    at, reached = kernel.intensity, kernel.reached(peaks)
    cells = [
        escape(kernel.name),
        count(kernel.calls),
        duration(kernel.time_s),
        share(kernel.time_s / step.t_step_s),
        three(at) if at is not None else "not counted",
        _rate(kernel, peaks),
        share(reached) if reached is not None else "",
    ]
    return _row(cells, kernel.role(peaks) if peaks and at is not None else "idle")


def _rate(kernel: Kernel, peaks: Peaks | None) -> str:
    """Of what binds it: FLOP/s, or bytes/s."""
    if kernel.intensity is None or not kernel.time_s:
        return ""
    if peaks is not None and kernel.role(peaks) == "compute":
        return si((kernel.flops or 0) / kernel.time_s, "FLOP/s")
    return si((kernel.bytes or 0) / kernel.time_s, "B/s")


def _rest(name: str, time_s: float, step: TimedStep) -> str:
    return _row([name, "", duration(time_s), share(time_s / step.t_step_s), "", "", ""], "overhead")


def _row(cells: list[str], role: str) -> str:
    inner = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr style="--ks: var(--ss-{role})">{inner}</tr>'


def device(busy: Mapping[str, Any], step: TimedStep, peaks: Peaks | None) -> str:
    """What the device says of itself, and why that is another thing than useful work."""
    utilisation, cpu = known(busy.get("utilisation")), known(busy.get("cpu_percent"))
    said = []
    if utilisation is not None:
        said.append(f"GPU utilisation {share(utilisation)}")
    if cpu is not None:
        said.append(f"CPU use {three(cpu)}% (100% a core)")
    told = " · ".join(said) or "Utilisation is not reported by this source"
    return f'<p class="aside"><b>{told}.</b> {_meaning(utilisation, step, peaks)}</p>'


def _meaning(utilisation: float | None, step: TimedStep, peaks: Peaks | None) -> str:
    if utilisation is not None:
        busy = "100% says that at every moment some kernel ran, not that it did useful work"
    else:
        busy = "100% says that a core never slept, not that it did useful work: one that waits for "
        busy += "memory or at a barrier is busy too"
    if peaks is None:
        return f"{busy}."
    reached = share(step.floor_s(peaks) / step.t_step_s)
    return f"{busy}. This step needed {reached} of its time at the roof."
