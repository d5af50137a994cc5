"""The Scheduling page: another schedule is asked for, and the answer comes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Server, started

pytestmark = [pytest.mark.browser, pytest.mark.process]
ANSWER_MS = 120_000
MODELLED = ("--backend", "modelled", "--device", "h100-sxm", "--model", "llama-3.1-8b")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Modelled, so that neither model nor calibration has to be there."""
    with started(tmp_path_factory.mktemp("replay"), MODELLED) as made:
        made.wait_ready()
        yield made


def opened(page: Page, server: Server) -> None:
    """The question is the third way to look at the page."""
    page.goto(f"{server.url}/scheduling")
    page.get_by_role("radio", name="What if", exact=True).click()
    expect(page.get_by_text("What would another schedule have done")).to_be_visible(timeout=30_000)


def test_a_prediction_stands_beside_what_was_recorded(page: Page, server: Server) -> None:
    opened(page, server)
    page.get_by_role("button", name="Predict").click()
    table = page.locator(".ss-replay table")
    expect(table).to_be_visible(timeout=ANSWER_MS)
    expect(page.locator(".ss-replay .said")).to_contain_text("chunked of 64: worst gap")
    expect(table.locator("tr").filter(has_text="worst gap")).to_contain_text("ms")
    expect(table.locator(".ss-modelled")).to_have_text("predicted")
    drawn = table.locator("u").first.bounding_box()
    assert drawn is not None
    assert drawn["x"] + drawn["width"] <= 1280


def test_a_sweep_marks_its_best_point(page: Page, server: Server) -> None:
    opened(page, server)
    page.get_by_label("Worst gap, ms").fill("30000")
    page.get_by_label("Worst gap, ms").press("Enter")
    page.get_by_role("button", name="Sweep budgets").click()
    best = page.locator(".ss-replay tr.best")
    expect(best).to_have_count(1, timeout=2 * ANSWER_MS)
    expect(page.locator(".ss-replay .said")).to_contain_text(
        "Best for a worst gap of at most 30.0 s"
    )
    expect(page.locator(".ss-replay i.target").first).to_be_attached()


def test_a_link_opens_it_in_the_look_of_the_reader(browser: Browser, server: Server) -> None:
    """Opened first, nothing else has told the document its look yet."""
    page = browser.new_context(color_scheme="dark").new_page()
    page.goto(f"{server.url}/scheduling?view=What+if")
    expect(page.get_by_text("What would another schedule have done")).to_be_visible(timeout=30_000)
    expect(page.locator("html")).to_have_attribute("data-look", "dark")
    expect(page.locator("#ss-counter")).to_contain_text("step")
    page.context.close()
