"""Colours and type of every chart: warm is math, cool is bytes, grey is nothing gained.

The values are the table in `views.md`: each fill has at least 3.05:1 contrast on its background,
and pairs stay apart under normal, protan, deutan and tritan vision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FONT = '"Source Sans", "Source Sans Pro", "Source Sans 3", sans-serif'
TEXT_PX = 13
CALLOUT_PX = 15
FILLS = ("prefill", "decode", "compute", "memory", "cached", "overhead", "padding", "lost")


@dataclass(frozen=True, slots=True)
class Theme:
    """One appearance: a colour for each role, and the inks around them."""

    name: str
    background: str
    text: str
    muted: str
    grid: str
    axis: str
    prefill: str
    decode: str
    compute: str
    memory: str
    cached: str
    overhead: str
    padding: str
    lost: str
    idle: str
    dark_text_on: tuple[str, ...]

    def fill(self, role: str) -> str:
        """Colour of a role; an unknown role raises AttributeError."""
        colour: str = getattr(self, role)
        return colour

    def text_on(self, role: str) -> str:
        """Ink that reads on the fill of a role."""
        return "#111111" if role in self.dark_text_on else "#FFFFFF"


LIGHT = Theme(
    name="light",
    background="#FFFFFF",
    text="#14181F",
    muted="#5A6270",
    grid="#E6E8EB",
    axis="#B9BEC6",
    prefill="#CA850A",
    decode="#2E9EC9",
    compute="#A52302",
    memory="#22326A",
    cached="#297950",
    overhead="#474445",
    padding="#929390",
    lost="#9C487E",
    idle="#B9BEC6",
    dark_text_on=("prefill", "decode", "padding"),
)
DARK = Theme(
    name="dark",
    background="#0E1117",
    text="#F2F4F8",
    muted="#A3ACBA",
    grid="#242A34",
    axis="#444C59",
    prefill="#FFC854",
    decode="#A7D5FD",
    compute="#F94821",
    memory="#2865C8",
    cached="#4B9E6A",
    overhead="#BBBBBB",
    padding="#656363",
    lost="#CA6DA2",
    idle="#444C59",
    dark_text_on=("prefill", "decode", "compute", "cached", "overhead", "lost"),
)
THEMES = {"light": LIGHT, "dark": DARK}


def theme(name: str) -> Theme:
    """The theme of that name; anything else is light, since a browser may send anything."""
    return THEMES.get(name, LIGHT)


def rgba(colour: str, alpha: float) -> str:
    """`#RRGGBB` with an opacity in 0..1, as CSS."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def hatched(colour: str, background: str, shape: str = "/") -> dict[str, Any]:
    """A plotly pattern: hatching in a colour over a pale wash of it."""
    return {
        "shape": shape,
        "fgcolor": colour,
        "bgcolor": mixed(colour, background, 0.16),
        "size": 6,
        "solidity": 0.32,
        "fillmode": "overlay",
    }


def mixed(colour: str, background: str, alpha: float) -> str:
    """`#RRGGBB` as it looks with an opacity in 0..1 over a background, itself opaque."""
    pairs = [(int(colour[i : i + 2], 16), int(background[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(c * alpha + b * (1 - alpha)):02X}" for c, b in pairs)


def axis(look: Theme, title: str = "", **more: Any) -> dict[str, Any]:
    """One axis: thin, quiet, with its unit in the title."""
    base: dict[str, Any] = {
        "title": {"text": title, "standoff": 6, "font": {"size": TEXT_PX, "color": look.text}},
        "tickfont": {"size": TEXT_PX, "color": look.muted},
        "gridcolor": look.grid,
        "linecolor": look.axis,
        "tickcolor": look.axis,
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": False,
    }
    return base | more


def layout(look: Theme, height: int, **more: Any) -> dict[str, Any]:
    """Layout shared by every figure; `uirevision` keeps zoom through updates."""
    base: dict[str, Any] = {
        "template": "none",
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": TEXT_PX, "color": look.text},
        "hoverlabel": {"font": {"family": FONT, "size": TEXT_PX}},
        "margin": {"l": 64, "r": 12, "t": 8, "b": 36},
        "showlegend": False,
        "uirevision": "keep",
        "bargap": 0,
    }
    return base | more


def note(look: Theme, text: str, size: Any = TEXT_PX, /, **more: Any) -> dict[str, Any]:
    """A text annotation without an arrow."""
    base: dict[str, Any] = {
        "text": text,
        "showarrow": False,
        "font": {"size": size, "color": look.text, "family": FONT},
    }
    return base | more
