"""Controls of the Scheduling page: what its chart shows, and over what."""

from __future__ import annotations

import streamlit as st

from app.controls import load_controls
from app.frame import Frame

_SPANS = {"5 s": "5", "20 s": "20", "60 s": "60", "5 min": "300"}
_LANES = {
    "slots over time": ("slot", "time"),
    "slots over steps": ("slot", "steps"),
    "requests over time": ("request", "time"),
    "requests over steps": ("request", "steps"),
}


def controls(page: Frame) -> dict[str, str]:
    """Draw them; the parameters of the view that they make."""
    load_controls(page.is_live)
    rows, x = _LANES[_chosen("lanes", list(_LANES), 0, 176)]
    return {"x": x, "rows": rows, "span": _SPANS[_chosen("span", list(_SPANS), 1, 84)]}


def _chosen(key: str, options: list[str], index: int, width: int) -> str:
    """In a box, since the row has no room for a switch; the address keeps it."""
    return str(
        st.selectbox(
            key,
            options,
            index,
            key=key,
            width=width,
            label_visibility="collapsed",
            bind="query-params",
        )
    )
