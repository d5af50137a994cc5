"""Files that the pages send as they are."""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).resolve().parent / "static"
ICON = STATIC / "icon.svg"


def style() -> str:
    """The stylesheet of all pages."""
    return (STATIC / "page.css").read_text(encoding="utf-8")
