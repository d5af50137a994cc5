"""From a click on the scheduler's control to the frame whose headline names the new scheduler."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

from playwright.sync_api import Browser, Page

from tests.bench.live_demo import demo, opened, rest
from tests.bench.live_pixel import spread

# The step that runs when it is clicked ends first: with a prompt in it that is most of the time.
MOST_P95_S = 1.0
_NAMES = ("static", "chunked", "continuous")
_REST_S = 1.5

_CLICK = """
(name) => {
  window.__flipped = null;
  document.addEventListener("click", (event) => {
    const began = event.timeStamp, headline = document.querySelector("#ss-headline");
    const look = () => {
      if (!headline.textContent.startsWith(name)) return requestAnimationFrame(look);
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => { window.__flipped = performance.now() - began; };
      port2.postMessage(0);
    };
    requestAnimationFrame(look);
  }, { capture: true, once: true });
}
"""


def flips(browser: Browser, count: int) -> dict[str, Any]:
    """So many clicks on Live, one scheduler after the other."""
    with demo(()) as server:
        page = opened(browser, server, "live")
        took = [_flip(page, name) for name in islice(cycle(_NAMES), count)]
        page.context.close()
    return {"flips": len(took), "shown_s": spread(took)}


def _flip(page: Page, name: str) -> float:
    """Seconds."""
    page.evaluate(_CLICK, name)
    page.get_by_role("radio", name=name, exact=True).click()
    page.wait_for_function("window.__flipped !== null")
    took_s = float(page.evaluate("window.__flipped")) / 1e3
    rest(page, _REST_S)
    return took_s
