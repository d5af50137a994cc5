"""A dashboard over a slow line: what a page asked for arrives after the page was left."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.scenes import SCENES
from tests.e2e.conftest import Server

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180)]

# Every message to the browser comes so late, ms: longer than its timers' period, so that each of
# them fires at least once between a click and the news that the page has changed.
LATE_MS = 1_200
SLOW = f"""(() => {{
  const Fast = window.WebSocket;
  window.WebSocket = class extends Fast {{
    addEventListener(type, heard, options) {{
      const late = e => setTimeout(() => heard(e), {LATE_MS});
      super.addEventListener(type, type === 'message' ? late : heard, options);
    }}
  }};
}})()"""


def test_scenes_change_the_page_while_its_timers_still_ask_for_it(
    page: Page, server: Server
) -> None:
    page.add_init_script(SLOW)
    page.goto(server.url)
    page.wait_for_selector("#ss-strip .main-svg")
    play(page, "Long contexts")
    page.wait_for_selector("#ss-roofline .main-svg")
    play(page, "Type a prompt")
    page.wait_for_selector("#ss-strip .main-svg")
    page.wait_for_timeout(4 * LATE_MS)  # an update that has no place on the page would come by then
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_enabled()
    expect(page.get_by_role("combobox", name="Workload", exact=True)).to_be_enabled()


def play(page: Page, name: str) -> None:
    box = page.get_by_role("combobox", name="Scene", exact=True)
    expect(box).to_be_enabled()
    box.click()
    page.get_by_role("option", name=name).click()
    expect(page.get_by_test_id("stToast").filter(has_text=SCENES[name].look_for)).to_be_visible()
