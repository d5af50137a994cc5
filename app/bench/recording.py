"""What recording costs a step: paired runs with it and without, in turn, and the parts of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import psutil

from app.bench.driver import EngineDriver
from app.bench.stats import median_interval, pair_ratios
from telemetry.clock import now_ns, seconds
from telemetry.recorder import Recorder


def recording_cost(
    driver: EngineDriver, recorder: Recorder, prompt: Sequence[int], steps: int, pairs: int
) -> dict[str, Any]:
    """Mean step time with recording over that without, at batch 1, minus 1.

    Without it no record is made at all. Which side is first changes from pair to pair; low and
    high hold the median of all pairs in 95 of 100 cases. Beside it what can be timed by itself:
    engine_s, by how much longer a step works after its token is out, and sender_s, the CPU time
    of the sender's thread per step, which runs beside the steps.
    """
    means: dict[str, list[float]] = {"on": [], "off": []}
    tails: dict[str, list[float]] = {"on": [], "off": []}
    sender_s = 0.0
    for pair in range(pairs):
        for name in ("on", "off") if pair % 2 == 0 else ("off", "on"):
            driver.engine.records_steps = name == "on"
            before_s = _cpu_s(recorder)
            mean, after = _run(driver, prompt, steps)
            recorder.flush()  # what was recorded is sent before the other side begins
            sender_s += _cpu_s(recorder) - before_s if name == "on" else 0.0
            means[name].append(mean)
            tails[name] += after
    driver.engine.records_steps = True
    ratio = pair_ratios(means["on"], means["off"])
    ratios = [on / off for on, off in zip(means["on"], means["off"], strict=True)]
    low, high = median_interval(ratios)
    on_s, off_s = (statistics.median(means[name]) for name in ("on", "off"))
    engine_s = statistics.median(tails["on"]) - statistics.median(tails["off"])
    return {
        "overhead": ratio.median - 1,
        "low": low - 1,
        "high": high - 1,
        "least": ratio.low - 1,
        "greatest": ratio.high - 1,
        "on_s": on_s,
        "off_s": off_s,
        "engine_s": engine_s,
        "sender_s": sender_s / (pairs * steps),
        "engine_share": engine_s / off_s,
        "pairs": pairs,
        "steps": steps,
    }


def _run(driver: EngineDriver, prompt: Sequence[int], steps: int) -> tuple[float, list[float]]:
    """Mean time of the decode steps, and what came after each step's token, seconds.

    A step begins where the last one ended, so the gap between two tokens is one step.
    """
    tails: list[float] = []

    def after_step(token_ns: int) -> None:
        tails.append(seconds(now_ns() - token_ns))

    done = driver.generate([prompt], [steps + 1], max_batch=1, after_step=after_step)
    return seconds(done.token_ns[-1] - done.token_ns[0]) / steps, tails[1:-1]


def _cpu_s(recorder: Recorder) -> float:
    """CPU time of the sender's thread so far."""
    threads = psutil.Process().threads()
    ours = (t for t in threads if t.id == recorder.thread_id)
    return float(sum(t.user_time + t.system_time for t in ours))
