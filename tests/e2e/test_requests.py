"""Requests in a real browser: one request's picture, numbers and text against the recording."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from telemetry.database import open_reader
from tests.e2e.conftest import Server
from tests.e2e.looks import folder, screenshots
from tests.e2e.standing import paused

pytestmark = [pytest.mark.browser, pytest.mark.process]

PIECE = """name => {
  const t = document.querySelector('#ss-split').data
    .filter(t => t.name === name && t.y[0] === 'as it ran');
  return t.length ? t[0].x[0] : 0;
}"""
TOTAL = """document.querySelector('#ss-split').data.filter(t => t.y[0] === 'as it ran')
  .reduce((sum, t) => sum + t.x[0], 0)"""
ROWS = "document.querySelector('#ss-waterfall').layout.yaxis.ticktext"
BAR = """() => {
  const div = document.querySelector('#ss-waterfall'), box = div.getBoundingClientRect();
  const t = div.data.find(t => t.name === 'decode'), {xaxis, yaxis} = div._fullLayout;
  const i = t.x.findIndex(x => xaxis.l2p(x) - xaxis.l2p(0) > 12);
  return [box.x + xaxis._offset + xaxis.l2p(t.base[i] + t.x[i] / 2),
          box.y + yaxis._offset + yaxis.l2p(t.y[i]), t.customdata[i]];
}"""


def open_page(page: Page, server: Server, query: str = "") -> None:
    page.goto(f"{server.url}/requests{query}")
    page.wait_for_selector("#ss-waterfall .main-svg")


def wait_finished(page: Page) -> None:
    """Until a request has ended: then one is opened by itself."""
    page.wait_for_function(
        "/ took /.test(document.querySelector('#ss-headline')?.textContent ?? '')", timeout=90_000
    )


def test_it_fits_one_screen_in_both_looks(browser: Browser, server: Server, tmp_path: Path) -> None:
    def drawn(page: Page) -> None:
        for place in ("waterfall", "split", "ribbon"):
            page.wait_for_selector(f"#ss-{place} .main-svg")

    for name, query in (("requests", ""), ("requests-clock", "?align=clock")):
        url = f"{server.url}/requests{query}"
        assert len(screenshots(browser, url, name, folder(tmp_path), drawn)) == 2


def test_a_click_opens_a_request_and_the_address_keeps_it(page: Page, server: Server) -> None:
    open_page(page, server)
    with paused(page):
        x, y, request = page.evaluate(BAR)
        page.mouse.click(x, y)
        page.wait_for_function(
            f"document.querySelector('#ss-opened b').textContent === 'r-{request}'"
        )
        assert f"request={request}" in page.url
        page.reload()
        page.wait_for_selector("#ss-waterfall .main-svg")
        assert page.inner_text("#ss-opened b >> nth=0") == f"r-{request}"


def test_the_list_is_sorted_and_filtered(page: Page, server: Server) -> None:
    open_page(page, server)
    page.get_by_role("radio", name="running").click()
    page.wait_for_function(f"{ROWS}.length <= 8 && {ROWS}.length > 0")
    box = page.get_by_placeholder("label or r-17")
    box.fill("no such request")
    box.press("Enter")
    page.get_by_text("No request matches").wait_for()
    box.fill("")
    box.press("Enter")
    page.get_by_role("radio", name="all").click()
    page.get_by_role("combobox", name="Sort by").click()
    page.get_by_role("option", name="by arrival").click()
    numbers = "names.map(n => +n.match(/r-(\\d+)/)[1])"
    page.wait_for_function(
        f"(names => {{ const ids = {numbers};"
        f" return ids.length > 1 && ids.every((id, i) => !i || id > ids[i - 1]); }})({ROWS})"
    )


def test_the_opened_request_is_what_was_recorded(page: Page, server: Server) -> None:
    """Last: read the page, end the server, and compare with the file."""
    open_page(page, server)
    wait_finished(page)
    with paused(page):
        seen = {
            "head": page.inner_text("#ss-opened .rq-head"),
            "equation": page.inner_text("#ss-opened .rq-equation span"),
            "queue": page.evaluate(PIECE, "queue"),
            "text": page.inner_text("#ss-text"),
            "tokens": page.locator("#ss-text span").count(),
            "total": page.evaluate(TOTAL),
        }
    server.stop()
    found = re.match(r"r-(\d+) ", seen["head"])
    assert found is not None
    with open_reader(server.db) as reader:
        row = reader.row(f"SELECT * FROM request_latency WHERE request_id = {found[1]}")
    assert row is not None
    compare(row, seen)
    assert seen["total"] == pytest.approx(row["e2el_s"], rel=1e-3)


def compare(row: dict[str, Any], seen: dict[str, Any]) -> None:
    assert f"prompt {row['prompt_tokens']} " in seen["head"]
    assert seen["tokens"] == row["output_tokens"]
    assert seen["queue"] == pytest.approx(row["queue_s"], rel=1e-3, abs=1e-6)
    numbers = [float(n) for n in re.findall(r"[\d.]+", seen["equation"])]
    want = [row["ttft_s"], row["output_tokens"] - 1, row["tpot_s"], row["e2el_s"]]
    assert numbers == pytest.approx(want, rel=0.006)
    assert len(seen["text"].split()) > 3
    assert "at hand" not in seen["text"]
