"""Screenshots for people to look at, in light and dark, in the folder STEPSCOPE_SHOTS names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page

FOLDER = "STEPSCOPE_SHOTS"


def folder(otherwise: Path) -> Path:
    """Where they go; a temporary folder where nobody asks for them."""
    found = Path(os.environ.get(FOLDER, otherwise))
    found.mkdir(parents=True, exist_ok=True)
    return found


def screenshots(
    browser: Browser, url: str, name: str, into: Path, ready: Callable[[Page], object]
) -> list[Path]:
    """One per look at 1280 x 720, once `ready` returns; nothing may reach below the window."""
    made = []
    for look in ("light", "dark"):
        context = browser.new_context(
            viewport={"width": 1280, "height": 720},
            color_scheme=look,  # type: ignore[arg-type]
        )
        try:
            page = context.new_page()
            page.set_default_timeout(45_000)
            page.goto(url)
            ready(page)
            low = page.evaluate(
                "Math.max(...[...document.querySelectorAll('.ss-panel:not([hidden])')]"
                ".map(e => e.getBoundingClientRect().bottom))"
            )
            assert low <= 722, f"{name} reaches down to {low}"
            made.append(into / f"{name}-{look}.png")
            page.screenshot(path=made[-1])
        finally:
            context.close()
    return made
