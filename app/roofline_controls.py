"""Controls of the Roofline page: its scale, and what it draws beside the run's own roofs."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import state, window_choice
from app.controls import load_controls
from app.frame import Frame
from app.panels import roofline_compare as compare
from telemetry.queries.live import run as run_row

SCALES = ("absolute", "normalised")
NONE = "none"


def controls(page: Frame) -> dict[str, str]:
    """Draw them; the parameters of the view that they make. The address keeps every choice."""
    load_controls(page.is_live)
    # The widget itself says what is chosen: on the first run an address knows before the state.
    scale = str(
        st.segmented_control(
            "Scale",
            SCALES,
            key="scale",
            default=SCALES[0],
            required=True,
            label_visibility="collapsed",
            bind="query-params",
        )
    )
    return {"scale": scale, **_beside(page)}


def _beside(page: Frame) -> dict[str, str]:
    run = _run(page)
    with st.popover("Compare"):
        st.caption("Roofs beside this run's, dashed: what is not measured here is a datasheet's.")
        device = _choice("compare_device", "a device", compare.device_choices())
        dtypes = compare.dtype_choices(run, device) if run else []
        own = compare.rates_of(run).own if run else None
        words = {d: f"{d} beside {own}" if own else d for d in dtypes}
        dtype = _choice("compare_dtype", "another dtype", words)
    chosen = {"compare_device": device, "compare_dtype": dtype}
    return {name: value for name, value in chosen.items() if value != NONE}


def _run(page: Frame) -> dict[str, Any] | None:
    """The shown run's own row: which dtypes its machine was measured in."""
    current, run_id = state.session(), window_choice.run_id(page.run)
    if current is None or run_id is None:
        return None
    with current.store.reader() as reader:
        return run_row(reader, run_id)


def _choice(key: str, what: str, names: dict[str, str]) -> str:
    """One of the names, or NONE; what was chosen and is no more offered is let go."""
    if st.session_state.get(key, NONE) not in (NONE, *names):
        st.session_state[key] = NONE
    return str(
        st.selectbox(
            what,
            [NONE, *names],
            format_func=lambda name: names.get(name, f"no {what.split()[-1]}"),
            key=key,
            width=290,
            label_visibility="collapsed",
            bind="query-params",
        )
    )
