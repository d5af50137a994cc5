"""Files that the pages send as they are."""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).resolve().parent / "static"
ICON = STATIC / "icon.svg"


def style() -> str:
    """The stylesheet of all pages."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.css")))
