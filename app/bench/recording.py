"""What the recorder costs a step: paired runs with it and without, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from app.bench.driver import EngineDriver
from app.bench.stats import pair_ratios
from engine.sink import NullSink, Sink
from telemetry.clock import now_ns, seconds
from telemetry.recorder import Recorder


def recording_cost(
    driver: EngineDriver, recorder: Recorder, prompt: Sequence[int], steps: int, pairs: int
) -> dict[str, Any]:
    """Step time with the recorder over step time without it, at batch 1, minus 1.

    median, low, high over the pairs; which side is first changes from pair to pair. Beside it
    the part of a step after its token is out: making the record and handing it over.
    """
    sides: dict[str, list[float]] = {"on": [], "off": []}
    after: list[float] = []
    sinks: dict[str, Sink] = {"on": recorder, "off": NullSink()}
    for pair in range(pairs):
        for name in ("on", "off") if pair % 2 == 0 else ("off", "on"):
            driver.tap.sink = sinks[name]
            times, tails = _run(driver, prompt, steps)
            sides[name].append(statistics.fmean(times))
            after += tails if name == "on" else []
            recorder.flush()  # what was recorded is sent before the other side begins
    driver.tap.sink = recorder
    ratio = pair_ratios(sides["on"], sides["off"])
    on_s, off_s = (statistics.median(sides[name]) for name in ("on", "off"))
    return {
        "overhead": on_s / off_s - 1,
        "paired_overhead": ratio.median - 1,
        "low": ratio.low - 1,
        "high": ratio.high - 1,
        "on_s": on_s,
        "off_s": off_s,
        "record_s": statistics.median(after),
        "pairs": pairs,
        "steps": steps,
    }


def _run(
    driver: EngineDriver, prompt: Sequence[int], steps: int
) -> tuple[list[float], list[float]]:
    """Times of the decode steps, and of what came after each step's end."""
    tails: list[float] = []

    def after_step() -> None:
        step = driver.tap.steps[-1]
        tails.append(seconds(now_ns() - step.t_start_ns) - step.t_step_s)

    done = driver.generate([prompt], [steps + 1], max_batch=1, after_step=after_step)
    decodes = [r.t_step_s for r in done.records if r.phase == "decode"]
    return decodes, tails
