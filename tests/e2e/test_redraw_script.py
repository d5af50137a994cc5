"""The script that has controls drawn again, alone, with Streamlit's way to send what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser

SCRIPT = Path(__file__).resolve().parents[2] / "app" / "static" / "redraw.js"
ORIGIN = "http://stepscope.test"
# All that is told until a timer of 0 ms is one message, and the fragment of the first runs for it
# (WidgetStateManager.scheduleFlush of Streamlit 1.67). window.deaf: messages are lost.
PAGE = """<div id="a"><div class="ss-root"></div></div><div id="b"><div class="ss-root"></div></div>
<script type="module">
import { mount } from "/redraw.js";
let pending = null;
window.messages = [];
function sent(name) {
  if (window.broken === name) throw new Error("it is gone");
  if (pending) return;
  pending = name;
  setTimeout(() => {
    window.messages.push(pending);
    if (!window.deaf) show(pending, window.__stepscope.engine);
    pending = null;
  }, 0);
}
function show(name, shown) {
  const parentElement = document.getElementById(name);
  mount({ parentElement, data: { shown }, setTriggerValue: () => sent(name) });
}
window.shown = () => ["a", "b"].map((name) =>
  document.getElementById(name).querySelector(".ss-root").redraw.shown);
window.busy = (ms) => { const end = performance.now() + ms; while (performance.now() < end); };
window.engine = (now) => {
  window.__stepscope = { engine: now };
  window.dispatchEvent(new Event("ss-engine"));
};
show("a", "running"); show("b", "running");
window.engine("running");
</script>"""


def serve(route: Route) -> None:
    if route.request.url.endswith(".js"):
        route.fulfill(content_type="text/javascript", body=SCRIPT.read_text())
    else:
        route.fulfill(content_type="text/html", body=PAGE)


@pytest.fixture
def script(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.route("**/*", serve)
    page.goto(f"{ORIGIN}/")
    page.wait_for_function("typeof window.engine === 'function'")
    yield page
    page.close()


def messages(page: Page) -> list[str]:
    return list(page.evaluate("window.messages"))


def test_controls_that_show_the_engine_ask_for_nothing(script: Page) -> None:
    script.wait_for_timeout(200)
    assert messages(script) == []


def test_all_controls_of_a_page_follow_one_message(script: Page) -> None:
    """No other message comes of an engine that was paused."""
    script.evaluate("engine('paused'); busy(100)")  # charts are drawn: timers come late
    script.wait_for_function("shown().every((s) => s === 'paused')")
    assert sorted(messages(script)) == ["a", "b"]


def test_what_was_lost_is_asked_for_again(script: Page) -> None:
    script.evaluate("window.deaf = true; engine('paused')")
    script.wait_for_function("messages.length === 2")
    script.evaluate("window.deaf = false")
    script.wait_for_function("shown().every((s) => s === 'paused')")


def test_one_that_cannot_ask_stops_no_other(script: Page) -> None:
    script.evaluate("window.broken = 'a'; engine('paused')")
    script.wait_for_function("shown()[1] === 'paused'")
    script.evaluate("window.broken = ''; engine('running')")
    script.wait_for_function("shown().every((s) => s === 'running')")


def test_an_engine_that_is_as_shown_again_is_not_asked_for(script: Page) -> None:
    script.evaluate("engine('paused'); engine('running')")
    script.wait_for_timeout(200)
    assert messages(script) == []


def test_what_the_clock_drew_of_a_moment_between_is_put_right(script: Page) -> None:
    """The clock's run saw a state that no message told of."""
    script.evaluate(
        "for (const id of ['a', 'b'])"
        " document.getElementById(id).querySelector('.ss-root').redraw.shown = 'paused';"
        "engine('running')"
    )
    script.wait_for_function("shown().every((s) => s === 'running')")
