"""Whether a tab that stays open grows: its heap after a forced collection, and its process."""

from __future__ import annotations

import math
import statistics
from typing import Any

import psutil
from playwright.sync_api import Browser, CDPSession, Page

from telemetry.clock import NS_PER_S, now_ns
from tests.bench.live_demo import demo, opened, rest, updates

EVERY_S = 10.0
WARM_S = 45.0
"""A page keeps what its first time fills: pools of the browser, compiled code, its caches."""
MOST_HEAP_BYTES = 1 << 20
"""Growth over the whole time that counts as flat, or two standard errors where those are more: a
page that leaks one figure an update would grow by a hundred times as much."""
MIB = 1 << 20


def measure(browser: Browser, name: str, minutes: float) -> dict[str, Any]:
    """One page for so long, once it has filled its caches."""
    with demo(()) as server:
        page = opened(browser, server, name)
        told = page.context.new_cdp_session(page)
        renderer = _renderer(browser, page)
        rest(page, WARM_S)
        before, rows = updates(page), []
        began_ns = now_ns()
        while not rows or rows[-1]["at_s"] < minutes * 60:
            at_s = (now_ns() - began_ns) / NS_PER_S
            rows.append({"at_s": at_s, **_sizes(told, renderer)})
            rest(page, EVERY_S)
        made = updates(page) - before
        page.context.close()
    return _told(rows) | {"page": name, "updates": made, "samples": rows}


def _sizes(told: CDPSession, renderer: psutil.Process) -> dict[str, int]:
    """Bytes, right after everything that nobody holds was given back."""
    told.send("HeapProfiler.enable")
    told.send("HeapProfiler.collectGarbage")
    heap = told.send("Runtime.getHeapUsage")["usedSize"]
    counters = told.send("Memory.getDOMCounters")
    return {
        "heap_bytes": int(heap),
        "rss_bytes": int(renderer.memory_info().rss),
        "nodes": int(counters["nodes"]),
        "listeners": int(counters["jsEventListeners"]),
    }


def _renderer(browser: Browser, page: Page) -> psutil.Process:
    """The process that draws the page: of the browser's renderers the one that works hardest."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    pids = [int(p["id"]) for p in found if p["type"] == "renderer"]
    before = {pid: _cpu_s(pid) for pid in pids}
    rest(page, 3)
    return psutil.Process(max(pids, key=lambda pid: _cpu_s(pid) - before[pid]))


def _cpu_s(pid: int) -> float:
    spent = psutil.Process(pid).cpu_times()
    return float(spent.user + spent.system)


def _told(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Per size its first and last value, its trend over the whole time, and the trend's error.

    What is in use when we look differs by megabytes, by what of the last chart is still there: a
    straight line through all looks tells what stays, and its standard error how well it does.
    """
    made: dict[str, Any] = {}
    at = [row["at_s"] for row in rows]
    for name in ("heap_bytes", "rss_bytes", "nodes", "listeners"):
        values = [row[name] for row in rows]
        made[name] = {"first": values[0], "last": values[-1], **_trend(at, values)}
    return made


def _trend(at: list[float], values: list[float]) -> dict[str, float]:
    """Least squares over all of the time, and the standard error of that."""
    slope, start = statistics.linear_regression(at, values)
    off = sum((v - start - slope * t) ** 2 for t, v in zip(at, values, strict=True))
    middle = statistics.fmean(at)
    error = math.sqrt(off / (len(at) - 2) / sum((t - middle) ** 2 for t in at))
    span_s = at[-1] - at[0]
    return {"trend": slope * span_s, "error": error * span_s}
