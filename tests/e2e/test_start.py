"""Who opens the page before the engine is ready sees it get ready, without a reload."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Error, Page

from telemetry.clock import sleep_s
from telemetry.database import open_reader
from tests.e2e.conftest import Server, started

pytestmark = [pytest.mark.browser, pytest.mark.process]


def open_early(page: Page, server: Server) -> None:
    """As soon as the port answers."""
    while server.process.poll() is None:
        try:
            page.goto(server.url)
            return
        except Error:
            sleep_s(0.1)
    pytest.fail(f"the server ended:\n{server.log.read_text()}", pytrace=False)


def test_a_page_opened_early_becomes_whole(page: Page, tmp_path: Path) -> None:
    with started(tmp_path) as server:
        open_early(page, server)
        page.wait_for_selector(".ss-badge:has-text('the engine is starting')")
        assert page.get_by_placeholder("the model is loading").is_disabled()
        page.wait_for_selector(".ss-badge:has-text('measured · CPU')", timeout=120_000)
        page.wait_for_selector(".ss-figure .main-svg")
        box = page.get_by_placeholder("Ask SmolLM2")
        box.fill("What is a river?")
        box.press("Enter")
        page.wait_for_selector("#ss-answer .answer .ended")
        assert "river" in page.inner_text("#ss-answer .said").lower()
        assert page.get_by_role("combobox", name="Max batch").input_value() == "batch 8"
        server.stop()
        with open_reader(server.db) as reader:
            changes = reader.rows("SELECT kind FROM events WHERE kind NOT IN ('peak_beaten')")
    assert changes == [("load",)], "a page that only looked has changed a setting"
