"""Screenshots for people to look at, in light and dark, in the folder STEPSCOPE_SHOTS names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page

from tests.e2e.conftest import told

FOLDER = "STEPSCOPE_SHOTS"
LOOKS: tuple[Literal["light", "dark"], ...] = ("light", "dark")
INK = {"light": "#14181F", "dark": "#F2F4F8"}
_DRAWN_IN = """ink => {
  const charts = [...document.querySelectorAll('.ss-panel.js-plotly-plot:not([hidden])')];
  return charts.length > 0 && charts.every(div => div.layout?.font?.color === ink);
}"""


def folder(otherwise: Path) -> Path:
    """Where they go; a temporary folder where nobody asks for them."""
    found = Path(os.environ.get(FOLDER, otherwise))
    found.mkdir(parents=True, exist_ok=True)
    return found


@contextlib.contextmanager
def screen(browser: Browser) -> Iterator[Page]:
    """A page of 1280 x 720 in the light look."""
    context = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme="light")
    try:
        context.set_default_timeout(45_000)
        with told(context.new_page()) as page:
            yield page
    finally:
        context.close()


def wear(page: Page, look: Literal["light", "dark"]) -> None:
    """Switch the look, as a person's system would in the evening: every chart follows."""
    page.emulate_media(color_scheme=look)
    page.wait_for_function(_DRAWN_IN, arg=INK[look])


def fits(page: Page) -> None:
    """Nothing reaches below the window, but for Live's requests: they begin there."""
    low = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.ss-panel:not([hidden]):not(.ss-stream)')]"
        ".map(e => e.getBoundingClientRect().bottom))"
    )
    assert low <= 722, f"{page.url} reaches down to {low}"


def screenshots(
    browser: Browser, url: str, name: str, into: Path, ready: Callable[[Page], object]
) -> list[Path]:
    """One per look at 1280 x 720, once `ready` returns; nothing may reach below the window."""
    made = []
    with screen(browser) as page:
        page.goto(url)
        ready(page)
        for look in LOOKS:
            wear(page, look)
            fits(page)
            made.append(into / f"{name}-{look}.png")
            page.screenshot(path=made[-1])
    return made
