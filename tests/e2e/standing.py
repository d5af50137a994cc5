"""A page that stands still, so that its words and its charts can be compared with each other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from playwright.sync_api import Page

# The server sends at least once a second what has changed; words and charts are drawn one by one.
QUIET_MS = 2000
_STANDS = """quiet => {
  const seen = window.__stepscope?.updates ?? 0, now = performance.now();
  if (!seen || seen !== window.ssSeen) { window.ssSeen = seen; window.ssSince = now; }
  return seen > 0 && now - window.ssSince > quiet;
}"""


def wait_standing(page: Page) -> None:
    """Until nothing has come for a while: only of a page whose engine is paused, or of a past."""
    page.wait_for_function(_STANDS, arg=QUIET_MS)


@contextlib.contextmanager
def paused(page: Page) -> Iterator[None]:
    """The engine paused and the page drawn; it runs again afterwards, whatever happened."""
    page.get_by_role("button", name="Pause").click()
    try:
        page.get_by_role("button", name="Resume").wait_for()
        wait_standing(page)
        yield
    finally:
        # Seen to run again: a tab that closes at once may take its last click with it.
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("button", name="Pause").wait_for()
