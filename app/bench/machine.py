"""What the figures belong to, and whether the machine was ours alone meanwhile."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

import psutil

from engine.threads import available_cores
from telemetry.clock import now_ns, seconds, sleep_s

CLEAN_FOREIGN = 0.05  # share of the machine's cores that others may use
LOOK_S = 2.0

T = TypeVar("T")


class Watch:
    """CPU time that others took, as a share of all cores.

    Ours are this process and all that it started, those that have ended included. Stolen time
    counts as others'.
    """

    def __init__(self) -> None:
        self.worst = 0.0

    def look(self) -> float:
        """The share before anything runs."""
        return self.during(lambda: sleep_s(LOOK_S))[1]

    def during(self, act: Callable[[], T]) -> tuple[T, float]:
        """What act returns, and the share while it ran."""
        started_ns, before = now_ns(), _foreign_s()
        result = act()
        taken_s = max(0.0, _foreign_s() - before)
        elapsed_s = max(1e-9, seconds(now_ns() - started_ns))
        share = taken_s / elapsed_s / (psutil.cpu_count() or 1)
        self.worst = max(self.worst, share)
        return result, share


def _foreign_s() -> float:
    machine = psutil.cpu_times()
    busy = machine.user + machine.nice + machine.system + getattr(machine, "steal", 0.0)
    return float(busy) - _family_s()


def _family_s() -> float:
    """CPU seconds of this process and its descendants; the ended ones are in their parents'."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            t = process.cpu_times()
        except psutil.Error:
            continue  # it ended just now, and will be in its parent's
        total += t.user + t.system + t.children_user + t.children_system
    return total


def memory_bytes(pid: int) -> int:
    """Resident memory of a process, bytes."""
    return int(psutil.Process(pid).memory_info().rss)


def describe(facts: dict[str, Any], threads: int) -> dict[str, Any]:
    """Device, cores, memory and versions; facts: what our side tells of itself."""
    return {
        "device": facts["device"],
        "cores": available_cores(),
        "threads": threads,
        "memory_bytes": psutil.virtual_memory().total,
        "huge_pages": facts["huge_pages"],
        "kernels": facts["kernels"],
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "stepscope": version("stepscope"),
        "model": facts["model"],
        "calibrated_at": facts["calibration"]["calibrated_at"],
        "calibration_foreign": facts["calibration"]["foreign_load"] / available_cores(),
    }
