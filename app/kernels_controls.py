"""Controls of the Kernels page: which of its two tabs, and whose kernels are under the roofs."""

from __future__ import annotations

import streamlit as st

from app.controls import choice
from app.panels.kernels_state import ALWAYS, DEFAULTS
from app.panels.kernels_step import PHASES

STEP, LAB = "step", "lab"
TABS = {STEP: "Step by kernel", LAB: "Contract lab"}
_FIRST = "tab:first"
LEGEND = [
    ("memory", "floor: read", ""),
    ("compute", "floor: math", ""),
    ("memory", "below roof", "hatch"),
    ("overhead", "launch gaps", "hatch"),
    ("overhead", "host", ""),
]


def shown_tab() -> str:
    """Which tab is open. A link with the lab's own parameters that names no tab is to the lab."""
    named = st.session_state.get("tab", st.query_params.get("tab"))
    return LAB if (named or TABS[_first()]) == TABS[LAB] else STEP


def _first() -> str:
    """Where an address names no tab; asked again while the tab is open it stays the same."""
    if _FIRST not in st.session_state:
        st.session_state[_FIRST] = LAB if set(ALWAYS) & set(st.query_params) else STEP
    return str(st.session_state[_FIRST])


def tab(shown: str) -> None:
    """Draw the switch between the tabs; the address keeps it, and of the lab only beside it."""
    st.segmented_control(
        "Tab",
        list(TABS.values()),
        key="tab",
        default=TABS[_first()],
        required=True,
        label_visibility="collapsed",
        bind="query-params",
    )
    for name in DEFAULTS if shown == STEP else ():
        st.query_params.pop(name, None)


def phase() -> str:
    """Whose kernels are shown; where the window has none of them, those that there are."""
    return choice("kernels_of", PHASES)
