"""What the sections of `live_views` share: a demo on the real engine, a page, and its clock."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from telemetry.clock import NS_PER_S, now_ns, sleep_s
from tests.e2e.conftest import FLAGS, Server, find_browser, started

# First chart of each page that an engine stands behind; the name is its address and its view.
CHARTS = {
    "live": "strip",
    "roofline": "roofline",
    "interference": "interference",
    "scheduling": "gantt",
    "kv-cache": "cache",
    "requests": "waterfall",
}
TRIPS = 60


@dataclass(frozen=True, slots=True)
class Clock:
    """`performance.now()` of a page, ms, on CLOCK_MONOTONIC, which engine and server share.

    error_ns: half the shortest round trip of many: the page read its clock somewhere within it.
    """

    zero_ns: int
    error_ns: int

    def ns(self, at_ms: float) -> int:
        """An instant of the page."""
        return self.zero_ns + round(at_ms * 1e6)


def clock_of(page: Page) -> Clock:
    """Asks the page for its time between two readings of ours; the closest two readings count."""
    trips = []
    for _ in range(TRIPS):
        before_ns = now_ns()
        at_ms = float(page.evaluate("performance.now()"))
        after_ns = now_ns()
        middle_ns = (before_ns + after_ns) // 2
        trips.append((after_ns - before_ns, middle_ns - round(at_ms * 1e6)))
    trip_ns, zero_ns = min(trips)
    return Clock(zero_ns, -(-trip_ns // 2))


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A real browser without a window, which draws as one with a window does."""
    with sync_playwright() as driver:
        path = find_browser()
        browser = driver.chromium.launch(executable_path=path, args=FLAGS, headless=True)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def demo(options: Sequence[str], steps: int = 300) -> Iterator[Server]:
    """`stepscope demo` once it has run so many steps; the recording is deleted with its folder."""
    with tempfile.TemporaryDirectory() as folder, started(Path(folder), options) as server:
        server.wait_ready()
        while server.health().get("steps", 0) < steps:
            sleep_s(0.2)
        yield server


def opened(browser: Browser, server: Server, name: str, script: str = "") -> Page:
    """A page of its own context, its first chart drawn; script runs in it before its own."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    context.set_default_timeout(60_000)
    page = context.new_page()
    if script:
        page.add_init_script(script)
    page.goto(f"{server.url}/{'' if name == 'live' else name}")
    page.wait_for_selector(f"#ss-{CHARTS[name]} .main-svg")
    return page


def updates(page: Page) -> int:
    """How many messages the page has received."""
    return int(page.evaluate("window.__stepscope.updates"))


def rest(page: Page, duration_s: float) -> None:
    """Time passes; the page goes on."""
    page.wait_for_timeout(duration_s * 1e3)


def rate(server: Server, duration_s: float) -> float:
    """Steps per second of the engine, by the engine's clock between its newest steps."""
    before = server.health()
    sleep_s(duration_s)
    after = server.health()
    ran_s = (after["clock_ns"] - before["clock_ns"]) / NS_PER_S
    return float((after["steps"] - before["steps"]) / ran_s)
