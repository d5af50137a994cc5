"""Whether a race on the page tells what two separate runs tell: the same work, the same times.

    .venv/bin/python -m tests.bench.race_honesty --rounds 3 [--requests 40] [--out FILE]

A round is a race on the page of a demo on the real engine, and `stepscope run` once for each of its
schedulers, in turn and each in processes of its own. Counts must be equal; times are compared by
the median over the rounds, beside what both sides differ by from round to round. Where browser and
server share the engine's cores, drawing a race while it records takes time from both of its legs
alike. Exit code 1 where a count differs, or where the times of race and runs, or how much longer
static took, lie apart further than both their spreads.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from app.bench.stats import Spread, pair_ratios
from app.figures.data import records
from engine.threads import cores_beside_a_server
from telemetry.clock import now_ns, seconds, sleep_s
from telemetry.database import open_reader
from telemetry.queries.race import legs, races
from tests.bench.live_demo import chromium, demo
from tests.bench.replay_honesty import stepscope
from tests.e2e.conftest import Server

MODES = ("static", "continuous")
SLOTS = 10
RACE_MS = 200_000
APART_S = 4.0
COUNTS = ("requests", "steps", "tokens", "padded_slot_steps", "most_padded")
TIMES = ("makespan_s", "tokens_per_s", "worst_ttft_s")
Figures = dict[str, float]


def main() -> int:
    asked = _arguments()
    rounds = []
    with chromium() as browser:
        for number in range(asked.rounds):
            of = (asked.requests, asked.threads)
            sides: list[tuple[str, Callable[[], dict[str, Figures]]]] = [
                ("page", partial(on_page, browser, *of)),
                ("unwatched", partial(on_page, browser, *of, watched=False)),
                ("runs", partial(by_runs, *of)),
            ]
            made = {}
            for name, measure in sides if number % 2 == 0 else sides[::-1]:
                print(f"round {number + 1}: {name}", file=sys.stderr)
                made[name] = measure()
            rounds.append(made)
    print("\n".join(table(rounds)))
    if asked.out is not None:
        asked.out.write_text(json.dumps(rounds, indent=1))
    return int(not agree(rounds))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=40)
    threads = "of every engine; default: what a demo takes, which leaves one core to the server"
    parser.add_argument("--threads", type=int, default=cores_beside_a_server(), help=threads)
    parser.add_argument("--out", type=Path, help="save all figures as JSON here")
    return parser.parse_args()


def on_page(
    browser: Browser, requests: int, threads: int, *, watched: bool = True
) -> dict[str, Figures]:
    """A race that somebody starts on the page, and watches or not; what the page says of a leg."""
    with demo(("--threads", str(threads)), steps=30) as server:
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.set_default_timeout(60_000)
        page.goto(f"{server.url}/scheduling?view=Race")
        ends_s = _race(page, requests, None if watched else server)
        page.close()
        server.stop()
        with open_reader(server.db) as reader:
            run = str(reader.value("SELECT run_id FROM runs"))
            newest = str(races(reader, run)["race"].iloc[-1])
            rows = records(legs(reader, run, newest))
    if any(abs(row["makespan_s"] - s) > 1e-6 for row, s in zip(rows, ends_s, strict=True)):
        raise SystemExit(f"the page's finish lines {ends_s} are not those of its recording: {rows}")
    for row in rows:
        row["padded_slot_steps"] = round(row["padded_slot_fraction"] * row["steps"] * SLOTS)
    return {row["mode"]: _figures(row) for row in rows}


def _race(page: Page, requests: int, unwatched: Server | None) -> list[float]:
    """Where the finish lines are drawn, s. unwatched: the page is elsewhere until it is over."""
    page.get_by_role("button", name="Set up").click()
    box = page.get_by_label("Requests")
    box.fill(str(requests))
    box.press("Enter")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Run race").click()
    if unwatched:
        _look_away(page, unwatched)
    page.wait_for_function(
        f"document.querySelector('#ss-headline')?.textContent.startsWith('Same {requests} ')",
        timeout=RACE_MS,
    )
    drawn = page.evaluate("document.querySelector('#ss-race').layout.meta.race.legs")
    return [float(leg["finish_s"]) for leg in drawn]


def _look_away(page: Page, server: Server) -> None:
    """Until the load of before has been back for longer than the legs lie apart."""
    url, since_ns = page.url, None
    while _workload(server) != "skew":
        sleep_s(0.1)
    page.goto("about:blank")
    while since_ns is None or seconds(now_ns() - since_ns) < APART_S:
        sleep_s(0.5)
        if _workload(server) == "skew":
            since_ns = None
        elif since_ns is None:
            since_ns = now_ns()
    page.goto(url)


def _workload(server: Server) -> str | None:
    """Of the load that runs now, as the engine says."""
    load = (server.health()["status"] or {}).get("load")
    return None if load is None else str(load["workload"])


def by_runs(requests: int, threads: int) -> dict[str, Figures]:
    """One `stepscope run` for each scheduler."""
    return {mode: _run(mode, requests, threads) for mode in MODES}


def _run(mode: str, requests: int, threads: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "run.duckdb"
        load = ("--workload", "skew", "--requests", str(requests), "--seed", "0")
        batch = ("--scheduler", mode, "--max-batch", str(SLOTS), "--threads", str(threads))
        told = stepscope("run", *batch, *load, "--db", str(db))
        with open_reader(db) as reader:
            padded = "SELECT sum(padded_slots) AS slot_steps, max(padded_slots) AS most FROM steps"
            waste = reader.row(padded) or {}
            ttft_s = reader.value("SELECT max(ttft_s) FROM request_latency")
    return _figures(
        {
            "requests": told["completed"],
            "steps": told["steps"],
            "tokens": told["output_tokens"],
            "padded_slot_steps": waste["slot_steps"],
            "most_padded": waste["most"],
            "makespan_s": told["makespan_s"],
            "tokens_per_s": told["output_tokens_per_s"],
            "worst_ttft_s": ttft_s,
        }
    )


def _figures(row: dict[str, Any]) -> Figures:
    return {name: float(row[name]) for name in (*COUNTS, *TIMES)}


def values(rounds: list[dict[str, Any]], side: str, mode: str, name: str) -> list[float]:
    """One figure of one side, round by round."""
    return [made[side][mode][name] for made in rounds]


def agree(rounds: list[dict[str, Any]]) -> bool:
    """Counts are equal; the medians of times are no further apart than both sides' spreads."""
    for mode in MODES:
        for name in COUNTS:
            if len({*values(rounds, "page", mode, name), *values(rounds, "runs", mode, name)}) > 1:
                return False
        for name in TIMES:
            if not _within(values(rounds, "page", mode, name), values(rounds, "runs", mode, name)):
                return False
    return _within(longer(rounds, "page"), longer(rounds, "runs"))


def _within(a: list[float], b: list[float]) -> bool:
    """Whether medians are no further apart than both spreads together."""
    one, other = Spread.of(a), Spread.of(b)
    noise = (one.high - one.low) + (other.high - other.low)
    return abs(one.median - other.median) <= noise


def table(rounds: list[dict[str, Any]]) -> Iterator[str]:
    """Markdown: medians, least and greatest of the rounds, and the page over the runs."""
    yield f"{len(rounds)} rounds, in turn. A ratio is of the two sides of one round."
    yield ""
    yield "| scheduler | figure | on the page | separate runs | page / runs |"
    yield "| --- | --- | --- | --- | --- |"
    for mode in MODES:
        for name in (*COUNTS, *TIMES):
            page, runs = (values(rounds, side, mode, name) for side in ("page", "runs"))
            same = page == runs
            ratio = "equal" if same else _shown(pair_ratios(page, runs))
            cells = (mode, name, _shown(Spread.of(page)), _shown(Spread.of(runs)), ratio)
            yield f"| {' | '.join(cells)} |"
        away, runs = (values(rounds, side, mode, "makespan_s") for side in ("unwatched", "runs"))
        ends = (_shown(Spread.of(away)), _shown(Spread.of(runs)), _shown(pair_ratios(away, runs)))
        yield f"| {mode} | makespan_s, unwatched | {' | '.join(ends)} |"
    page, runs = longer(rounds, "page"), longer(rounds, "runs")
    ends = (_shown(Spread.of(page)), _shown(Spread.of(runs)), _shown(pair_ratios(page, runs)))
    yield f"| static / continuous | makespan_s | {' | '.join(ends)} |"


def longer(rounds: list[dict[str, Any]], side: str) -> list[float]:
    """What a race is run for: how much longer static took than continuous, round by round."""
    static, continuous = (values(rounds, side, mode, "makespan_s") for mode in MODES)
    return [a / b for a, b in zip(static, continuous, strict=True)]


def _shown(spread: Spread) -> str:
    if spread.low == spread.high:
        return f"{spread.median:,.6g}"
    return f"{spread.median:.4g} of {spread.low:.4g} … {spread.high:.4g}"


if __name__ == "__main__":
    sys.exit(main())
