"""Interference in a real browser: inject, pin, chunk and inject again; drawn as it was recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page

from app.figures.gaps import BAD
from app.units import three
from telemetry.database import open_reader
from telemetry.queries import interference as queries
from telemetry.reader import Reader
from tests.e2e.conftest import Server, started
from tests.e2e.looks import folder, screenshots

pytestmark = [pytest.mark.browser, pytest.mark.process]

# A device whose steps are known to the model, so that the machine's own load changes no number;
# tests/process/test_interference.py holds the page against a real engine.
MODELLED = ("--backend", "modelled", "--device", "l4", "--model", "llama-3.1-8b")
PROMPT = "prompt 4,096 tokens"
DOTS = """axis => {
  const found = document.querySelector('#ss-interference').data.find(
    t => t.name === 'bad gaps, prefill' && t.xaxis === axis);
  return found.y.map((y, i) => [y, found.customdata[i], found.text[i]]);
}"""
DRAWN = "#ss-interference .main-svg"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("serve"), MODELLED) as made:
        made.wait_ready()
        yield made


def open_page(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector(DRAWN)


def wait_injected(page: Page, name: str, scheduler: str) -> None:
    """Until a side's first row is an injected prompt that has slowed somebody."""
    page.wait_for_function(
        """([name, scheduler]) => {
          const row = [...document.querySelectorAll('#ss-blame tr.first')].find(
            r => r.children[0].textContent === name);
          const titles = [...document.querySelectorAll('#ss-interference .annotation-text')];
          return row && row.children[1].textContent.endsWith('injected')
            && titles.some(t => t.textContent.includes(scheduler));
        }""",
        arg=[name, scheduler],
    )


def row_of(page: Page, name: str) -> list[str]:
    found = page.locator("#ss-blame tr.first").filter(has=page.locator(f"td:text-is('{name}')"))
    return found.locator("td").all_inner_texts()


def address(page: Page) -> dict[str, str]:
    return {k: v[0] for k, v in parse_qs(urlsplit(page.url).query).items()}


def test_inject_pin_chunk_and_inject_again(page: Page, server: Server, browser: Browser) -> None:
    """The page against the recording, which is read when the server has ended."""
    open_page(page, f"{server.url}/interference")
    page.wait_for_function(
        "document.querySelector('#ss-interference').data.find(t => t.name === 'baseline').y.length"
        " > 20"
    )
    page.get_by_role("combobox", name="length").click()
    page.get_by_role("option", name=PROMPT).click()
    page.get_by_role("button", name="Inject", exact=True).click()
    page.wait_for_function(
        "document.querySelector('#ss-headline').textContent.startsWith('One 4,096-token prompt')"
    )
    page.wait_for_timeout(5000)
    page.get_by_role("button", name="Pin as A").click()
    page.get_by_role("button", name="Unpin A").wait_for()
    page.get_by_role("button", name="Chunk at 64 and inject again").click()
    wait_injected(page, "A", "A · continuous · pinned")
    wait_injected(page, "B", "B · chunked, 64 tokens a step")
    page.wait_for_function("document.querySelector('#ss-headline').textContent.includes('TTFT')")
    page.wait_for_timeout(3000)
    sides = {"A": page.evaluate(DOTS, "x"), "B": page.evaluate(DOTS, "x2")}
    first = {name: row_of(page, name) for name in sides}
    pinned, text = address(page)["a"], page.inner_text("#ss-headline")
    linked = opened_by_link(browser, page.url)
    server.stop()
    with open_reader(server.db) as reader:
        worst_a = worst_of(reader, pinned, requested(first["A"]))
        bad = bad_gaps(reader, pinned)
    assert max(sides["A"])[:2] == pytest.approx(
        [worst_a["itl_s"] * 1e3, worst_a["inflation"]], 1e-3
    )
    assert first["A"][6] == f"×{three(worst_a['inflation'])}"
    # Of four streams, but one may have been between two requests.
    assert bad >= 3
    assert f"(×{three(worst_a['inflation'])}, {bad} gaps over 2×)" in text
    assert "Chunked at 64: " in text
    assert linked == (pinned, sides["A"])
    b_ms = max([y for y, _, _ in sides["B"]], default=0.0)
    assert max(sides["A"])[0] >= 3 * b_ms


def opened_by_link(browser: Browser, url: str) -> tuple[str, Any]:
    """A colleague's tab: the same pinned side."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    try:
        other = context.new_page()
        other.set_default_timeout(45_000)
        open_page(other, url)
        wait_injected(other, "A", "A · continuous · pinned")
        return address(other)["a"], other.evaluate(DOTS, "x")
    finally:
        context.close()


def requested(cells: list[str]) -> int:
    found = re.fullmatch(r"r-(\d+) injected", cells[1])
    assert found is not None
    return int(found[1])


def worst_of(reader: Reader, pinned: str, request: int) -> dict[str, Any]:
    """The longest gap of the pinned steps with prompt tokens of the request in it."""
    run_id, first, last = stretch(pinned)
    gaps = queries.gaps(reader, run_id, first, last)
    when = reader.rows(
        "SELECT step FROM sequence_steps WHERE request_id = $id AND phase = 'prefill'",
        {"id": request},
    )
    held = [any(a < s <= b for (s,) in when) for a, b in gaps[["after_step", "step"]].to_numpy()]
    return dict(gaps[held].nlargest(1, "itl_s").iloc[0])


def bad_gaps(reader: Reader, pinned: str) -> int:
    """How many gaps of the pinned steps took over twice their baseline."""
    gaps = queries.gaps(reader, *stretch(pinned))
    return int(gaps.loc[gaps["inflation"] > BAD, "gaps"].sum())


def stretch(pinned: str) -> tuple[str, int, int]:
    """Run, first and last step."""
    run_id, steps = pinned.rsplit(":", 1)
    first, last = map(int, steps.split("-"))
    return run_id, first, last


CURVE = """() => {
  const data = document.querySelector('#ss-interference').data;
  const of = name => data.find(t => t.name === name);
  return { x: of('worst gap').x, y: of('worst gap').y, told: of('worst gap').text,
    measured: of('measured, y').y };
}"""


def test_it_fits_one_screen_in_both_looks(
    browser: Browser, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    curves: list[dict[str, Any]] = []

    def drawn(page: Page) -> None:
        page.wait_for_selector(DRAWN)
        page.get_by_role("button", name="Inject", exact=True).click()
        page.wait_for_timeout(5000)

    def replayed(page: Page) -> None:
        page.wait_for_selector(".blame.budgets", timeout=120_000)
        page.wait_for_selector(DRAWN)
        curves.append(page.evaluate(CURVE))
        said = page.inner_text("#ss-headline")
        assert said.startswith("64 tokens a step: worst gap ")
        assert "Predicted by replay of " in said

    with started(tmp_path_factory.mktemp("looks"), MODELLED) as server:
        server.wait_ready()
        for name, query, ready in (
            ("interference", "", drawn),
            ("interference-time", "?show=over+time", drawn),
            ("interference-budget", "?show=token+budget", replayed),
        ):
            url = f"{server.url}/interference{query}"
            assert len(screenshots(browser, url, name, folder(tmp_path), ready)) == 2
        context = browser.new_context()
        other = context.new_page()
        other.goto(f"{server.url}/interference?show=token+budget")
        replayed(other)
        context.close()
        server.stop()
        with open_reader(server.db) as reader:
            gaps = {round(g * 1e3, 3) for (g,) in reader.rows("SELECT DISTINCT itl_s FROM itl")}
    first, second = curves[0], curves[-1]
    assert len(curves) > 1
    assert second == first, "another tab sees what the first has asked for"
    assert first["x"] == [4, 5, 6, 7, 8, 9, 10, 11]
    assert all(text.endswith("predicted") for text in first["told"])
    assert any(abs(first["measured"][0] / gap - 1) < 1e-3 for gap in gaps)
