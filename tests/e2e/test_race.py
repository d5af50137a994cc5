"""A small race on the real engine, in two tabs: recorded, drawn, replayed, and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from telemetry.database import open_reader
from telemetry.reader import Reader
from tests.e2e.conftest import Server
from tests.e2e.looks import folder, screenshots

pytestmark = [pytest.mark.browser, pytest.mark.process]

RACE_S = 240_000
CHOSEN = "document.querySelector('[class*=st-key-scheduler] [aria-checked=true]')?.textContent"
HEADLINE = "document.querySelector('#ss-headline')?.textContent"
REPLAY = "window.__stepscope.race"
CUT = """() => {
  const chart = document.querySelector('#ss-race'), full = chart._fullLayout.xaxis._length;
  const clips = [...chart.querySelectorAll('clipPath.plotclip rect')];
  const notes = [...chart.querySelectorAll('.annotation')];
  return { widths: clips.map(r => +r.getAttribute('width') / full),
    hidden: notes.filter(n => n.style.visibility === 'hidden').map(n => n.textContent) };
}"""
DRAWN = """() => {
  const chart = document.querySelector('#ss-race');
  const bars = chart.data.filter(t => t.type === 'bar');
  const of = (name) => bars.filter(t => t.name === name).map(t => t.x);
  return { padding: of('padding'), decode: of('decode'), meta: chart.layout.meta.race,
    notes: chart.layout.annotations.map(a => a.text),
    lines: chart.layout.shapes.map(s => s.x0),
    dashes: chart.data.filter(t => t.name.startsWith('waiting')).map(t => t.line.dash),
    numbers: [...document.querySelectorAll('#ss-numbers section')].map(s => s.innerText) };
}"""


def open_race(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/scheduling?view=Race")
    page.wait_for_selector("#ss-headline b")


def fill(page: Page, label: str, value: int) -> None:
    box = page.get_by_label(label)
    box.fill(str(value))
    box.press("Enter")


def test_a_race_is_recorded_in_all_tabs_and_is_what_the_store_says(
    page: Page, browser: Browser, server: Server, tmp_path: Path
) -> None:
    """Last, since it ends the server to read its file."""
    open_race(page, server)
    assert page.inner_text("#ss-headline").startswith("No race in this run.")
    page.get_by_role("button", name="Set up").click()
    fill(page, "Requests", 6)
    fill(page, "Slots (max batch)", 3)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Run race").click()
    other = browser.new_page()
    try:
        open_race(other, server)
        other.get_by_role("button", name="Cancel race").wait_for(timeout=RACE_S)
        for tab in (page, other):
            tab.wait_for_function(f"{HEADLINE}.startsWith('Recording static')", timeout=RACE_S)
        for tab in (page, other):
            told = "Same 6 requests, 3 slots"
            tab.wait_for_function(f"{HEADLINE}.startsWith('{told}')", timeout=RACE_S)
            tab.get_by_role("button", name="Run race").wait_for()
            tab.wait_for_function(f"{CHOSEN} === 'continuous'", timeout=20_000)
        drawn = page.evaluate(DRAWN)
        assert other.evaluate(DRAWN) == drawn
    finally:
        other.close()
    replay(page, drawn)
    url = f"{server.url}/scheduling?view=Race"
    assert len(screenshots(browser, url, "scheduling-race", folder(tmp_path), replayable)) == 2
    server.stop()
    with open_reader(server.db) as reader:
        compare(reader, drawn)


def replayable(page: Page) -> None:
    page.wait_for_selector(".ss-replay-bar:not([hidden])")
    page.wait_for_selector("#ss-race .main-svg")


def replay(page: Page, drawn: dict[str, Any]) -> None:
    """In the browser alone: from the start, slowly, held, and to the end with the keyboard."""
    end_s = drawn["meta"]["end_s"]
    page.wait_for_function(f"{REPLAY}.playing === true || {REPLAY}.frames > 0")  # by itself, once
    slider = page.get_by_label("Instant of the replay")
    slider.press("End")  # a key that leaves the slider where it is tells nobody
    page.wait_for_function(f"{REPLAY}.at === null && !{REPLAY}.playing")
    slider.press("Home")
    page.wait_for_function(f"{REPLAY}.at === 0 && !{REPLAY}.playing")
    assert max(page.evaluate(CUT)["widths"]) == 0
    assert any("done" in text for text in page.evaluate(CUT)["hidden"])
    page.get_by_label("Speed of the replay").select_option("0.25")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(f"{REPLAY}.playing && {REPLAY}.at > 0.1")
    page.locator(".ss-replay-bar button").click()
    page.wait_for_function(f"!{REPLAY}.playing")
    at = page.evaluate(f"{REPLAY}.at")
    page.wait_for_timeout(700)
    assert page.evaluate(f"{REPLAY}.at") == at < end_s
    cut = page.evaluate(CUT)["widths"]
    assert 0 < min(cut) == max(cut) < 1
    slider.press("End")
    page.wait_for_function(f"{REPLAY}.at === null")
    assert page.evaluate(CUT) == {"widths": [1] * len(cut), "hidden": []}


def compare(reader: Reader, drawn: dict[str, Any]) -> None:
    """The legs by their marks, and every figure of theirs in SQL of its own."""
    ends = {
        (row[0], row[1]): row[2]
        for row in reader.rows(
            "SELECT detail->>'$.mode', detail->>'$.part', t_ns FROM events "
            "WHERE kind = 'race' AND detail->>'$.mode' IS NOT NULL"
        )
    }
    for leg, mode in enumerate(("static", "continuous")):
        window = {"a": ends[mode, "start"], "b": ends[mode, "end"]}
        row = reader.row(
            """
            WITH mine AS (SELECT * FROM requests WHERE arrived_ns BETWEEN $a AND $b),
            ran AS (SELECT * FROM steps WHERE t_start_ns BETWEEN $a AND $b)
            SELECT (max(finished_ns) - min(arrived_ns)) / 1e9 AS makespan_s,
                   max(first_token_ns - arrived_ns) / 1e9 AS worst_ttft_s,
                   sum(output_tokens)::INT AS tokens, count(*) AS requests,
                   (SELECT sum(padded_slots) / sum(batch_slots) FROM ran) AS padded,
                   (SELECT count(*) FROM ran) AS steps, (SELECT any_value(scheduler) FROM ran) AS s
            FROM mine
            """,
            window,
        )
        assert row is not None
        assert (row["s"], row["requests"]) == (mode, 6)
        side = drawn["meta"]["legs"][leg]
        assert side["finish_s"] == pytest.approx(row["makespan_s"], abs=1e-6)
        assert side["finish_s"] in drawn["lines"]
        said = drawn["numbers"][leg]
        assert f"{row['steps']} steps" in said
        assert rounded(row["tokens"] / row["makespan_s"]) in said
        assert f"{rounded(100 * row['padded'])}%" in said
        assert rounded(row["worst_ttft_s"]) in said or rounded(1e3 * row["worst_ttft_s"]) in said
    static, continuous = drawn["padding"]
    assert len(static) >= 2
    assert continuous == []
    assert drawn["dashes"] == ["dot", "solid"]
    assert any("slots wait" in text and "for 1" in text for text in drawn["notes"])


def rounded(value: float) -> str:
    """Three significant figures, as people read them."""
    if value == 0:
        return "0"
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.1f}" if float(f"{value:.3g}") >= 10 else f"{value:.2f}"
