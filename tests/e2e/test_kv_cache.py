"""KV cache in a real browser: what is drawn of a paused engine is what its recording says."""

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

CELLS = "document.querySelector('#ss-map').data.find(t => t.name === 'blocks')"
COUNTS = f"""() => {{
  const counts = Array(8).fill(0);
  for (const row of {CELLS}.z) for (const code of row) if (code !== null) counts[code] += 1;
  return counts;
}}"""
BRIGHT = f"""() => {{
  const t = {CELLS}, found = new Set();
  t.z.forEach((row, i) => row.forEach((code, j) => {{
    if (code !== null && code > 0 && code < 4) found.add(t.customdata[i][j]);
  }}));
  return [...found];
}}"""
# The last bar of the areas: of one step, or of the fullest of several.
USED = """() => {
  const t = document.querySelector('#ss-cache').data.find(t => t.name === 'used');
  return {since_s: t.x.at(-2), blocks: +t.text.at(-1)};
}"""
CENTRE = f"""() => {{
  const div = document.querySelector('#ss-map'), t = {CELLS}, box = div.getBoundingClientRect();
  const row = t.customdata.findIndex(r => r.some(v => v !== null));
  const column = t.customdata[row].findIndex(v => v !== null);
  const {{xaxis, yaxis}} = div._fullLayout;
  return [box.x + xaxis._offset + xaxis.l2p(t.x0 + column * t.dx),
          box.y + yaxis._offset + yaxis.l2p(row), t.customdata[row][column]];
}}"""


def open_page(page: Page, server: Server, query: str = "") -> None:
    page.goto(f"{server.url}/kv-cache{query}")
    page.wait_for_selector("#ss-map .main-svg")


def test_it_fits_one_screen_in_both_looks(browser: Browser, server: Server, tmp_path: Path) -> None:
    def drawn(page: Page) -> None:
        for place in ("budget", "map", "cache"):
            page.wait_for_selector(f"#ss-{place} .main-svg")

    for name, query in (("kv-cache", ""), ("kv-cache-address", "?map=by+address")):
        url = f"{server.url}/kv-cache{query}"
        assert len(screenshots(browser, url, name, folder(tmp_path), drawn)) == 2


def test_the_map_of_a_paused_engine_is_what_was_recorded(page: Page, server: Server) -> None:
    """Pause, read both maps and the areas, click an owner; the file is compared afterwards."""
    open_page(page, server)
    with paused(page):
        step = int(re.sub(r"\D", "", page.inner_text("#ss-counter").split("·")[0]))
        by_request: list[int] = page.evaluate(COUNTS)
        used = page.evaluate(USED)
        clicks(page)
        page.get_by_role("radio", name="by address").click()
        page.wait_for_function(f"{CELLS}.z.length * {CELLS}.z[0].length > 600")
        by_address: list[int] = page.evaluate(COUNTS)
    assert server.stop() is not None
    with open_reader(server.db) as reader:
        row = reader.row(f"SELECT * FROM steps WHERE step = {step}")
        context = reader.rows(f"SELECT context_tokens FROM sequence_steps WHERE step = {step}")
        fullest = reader.value(
            "SELECT max(s.kv_blocks_used) FROM steps s, steps newest "
            f"WHERE newest.step = {step} AND s.step <= {step} AND s.t_start_ns > "
            f"newest.t_start_ns + (newest.t_step_s + {used['since_s']} - 0.0006) * 1e9"
        )
    assert row is not None
    compare(row, by_request, by_address)
    assert used["blocks"] == fullest
    assert by_request[2] == sum(c % 16 != 0 for (c,) in context)


def compare(row: dict[str, Any], by_request: list[int], by_address: list[int]) -> None:
    assert row["kv_blocks_used"] > 0
    assert by_request[2] + by_request[3] == row["kv_blocks_used"]
    each = -(-row["kv_blocks_total"] // 4096)
    assert each == 1, "this cache is drawn block by block"
    assert by_address[2] + by_address[3] == row["kv_blocks_used"]
    assert by_address[0] == row["kv_blocks_total"] - row["kv_blocks_used"]


def clicks(page: Page) -> None:
    """A click in the map fades all others and is in the address; a second one lets go."""
    x, y, owner = page.evaluate(CENTRE)
    page.mouse.click(x, y)
    page.wait_for_function(f"{CELLS}.z.some(row => row.some(code => code > 4))")
    assert page.evaluate(BRIGHT) == [owner]
    assert f"request={owner}" in page.url
    assert page.inner_text("#ss-headline").startswith(f"r-{owner} holds")
    page.reload()
    page.wait_for_selector("#ss-map .main-svg")
    assert page.evaluate(BRIGHT) == [owner]
    page.get_by_role("button", name="show all").press("Enter")
    page.wait_for_function(f"!{CELLS}.z.some(row => row.some(code => code > 4))")
    assert "request=" not in page.url
