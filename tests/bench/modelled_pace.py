"""How well a modelled demo keeps to real time, and how long a new run takes, in a real browser.

    .venv/bin/python -m tests.bench.modelled_pace --seconds 20 --streams 48

Opens each page on a modelled H100 that steps every 5 ms or so, and compares how far the run's
clock came with real time; then starts a new run from the run selector and takes the time from the
click on Start to its first step on the page. Prints JSON; exit code 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from telemetry.clock import now_ns, seconds, sleep_s
from tests.e2e.conftest import FLAGS, Server, find_browser, free_port

PAGES = ("", "roofline", "scheduling")
MOST_BEHIND = 0.05
MOST_NEW_RUN_S = 3.0
MODEL = ("--backend", "modelled", "--device", "h100-sxm", "--model", "llama-3.1-8b")
CLOCK = "() => document.querySelector('#ss-counter').textContent"


def main() -> int:
    asked = _arguments()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=FLAGS, headless=True)
        pages = _paces(Path(folder), browser, asked)
        new_runs_s = _new_runs(Path(folder), browser, asked)
        browser.close()
    worst = max(page["behind"] for page in pages.values())
    result = {"pages": pages, "worst_behind": worst, "new_run_s": new_runs_s}
    print(json.dumps(result, indent=2))
    return int(worst > MOST_BEHIND or max(new_runs_s) > MOST_NEW_RUN_S)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="on each page")
    parser.add_argument("--streams", type=int, default=48)
    parser.add_argument("--runs", type=int, default=3, help="new runs to time")
    parser.add_argument("--from-cpu", action="store_true", help="the run that is replaced is real")
    return parser.parse_args()


def _paces(folder: Path, browser: Browser, asked: argparse.Namespace) -> dict[str, Any]:
    load = ("--concurrency", str(asked.streams), "--max-batch", "64")
    server = _server(folder / "pace.duckdb", (*MODEL, *load))
    try:
        return {name or "live": _pace(server, browser, name, asked.seconds) for name in PAGES}
    finally:
        server.stop()


def _pace(server: Server, browser: Browser, name: str, duration_s: float) -> dict[str, float]:
    """The engine's clock is read off its steps: where the newest ended, against real time."""
    page = _open(server, browser, name)
    page.wait_for_timeout(3_000)
    before, updates = server.health(), _updates(page)
    began_ns = now_ns()
    page.wait_for_timeout(duration_s * 1e3)
    after, real_s = server.health(), seconds(now_ns() - began_ns)
    made = _updates(page) - updates
    page.context.close()
    modelled_s = seconds(after["clock_ns"] - before["clock_ns"])
    steps = after["steps"] - before["steps"]
    return {
        "real_s": real_s,
        "behind": max(0.0, 1 - modelled_s / real_s),
        "lag_s": after["pace"]["lag_s"],
        "step_s": modelled_s / steps,
        "updates_per_s": made / real_s,
    }


def _new_runs(folder: Path, browser: Browser, asked: argparse.Namespace) -> list[float]:
    first = () if asked.from_cpu else MODEL
    server = _server(folder / "runs.duckdb", first)
    try:
        page = _open(server, browser, "")
        times = [_new_run(page) for _ in range(asked.runs)]
        page.context.close()
        return times
    finally:
        server.stop()


def _new_run(page: Page) -> float:
    """From the click on Start to a step of the new run on the page; its counter begins again."""
    page.get_by_role("combobox", name="Run", exact=True).click()
    page.get_by_role("option", name="new run: modelled").click()
    start = page.get_by_role("button", name="Start", exact=True)
    start.wait_for()
    page.evaluate(f"window.__before = ({CLOCK})()")
    began_ns = now_ns()
    start.click()
    page.wait_for_function(
        "() => { const n = (t) => +t.replace(/\\D/g, ''); const t = "
        f"({CLOCK})(); return t.includes('modelled') && t.includes('step') "
        "&& n(t) < n(window.__before); }",
        timeout=60_000,
    )
    took_s = seconds(now_ns() - began_ns)
    page.wait_for_timeout(4_000)  # so that the next one replaces a run of some steps
    return took_s


def _open(server: Server, browser: Browser, name: str) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(f"{server.url}/{name}")
    page.wait_for_selector(".ss-figure .main-svg")
    return page


def _updates(page: Page) -> int:
    return int(page.evaluate("window.__stepscope.updates"))


def _server(db: Path, options: tuple[str, ...]) -> Server:
    port, log = free_port(), db.with_suffix(".log")
    program = str(Path(sys.executable).with_name("stepscope"))
    command = [program, "demo", "--port", str(port), "--db", str(db), *options]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, text=True, cwd=db.parent)
    server = Server(process, port, db, log)
    server.wait_ready()
    while server.health().get("steps", 0) < 300:
        sleep_s(0.2)
    return server


if __name__ == "__main__":
    sys.exit(main())
