"""Where the numbers on a page are from: measured here, or modelled with its assumptions."""

from __future__ import annotations

from html import escape
from typing import Any

import streamlit as st

from app import state
from app.live.views import LIVE
from app.panels import modelled


def badge(run: str) -> None:
    """Plain for measured runs; outlined for modelled ones, and a click shows all assumptions."""
    facts = run_facts(run)
    if facts is None:
        text = "the engine has stopped" if state.failure() else "the engine is starting"
        st.html(f'<div class="ss-badge">{text}</div>')
    elif modelled.is_modelled(facts):
        with (
            st.container(key="modelled", width="stretch"),
            st.popover(modelled.summary(facts), width="stretch"),
        ):
            st.html(modelled.assumptions(facts))
    else:
        where = f"{str(facts['backend']).upper()} {facts['dtype']}"
        line = escape(f"measured · {where} · {facts['model']} · {facts['device']}")
        st.html(f'<div class="ss-badge" title="{line}">{line}</div>')


def run_facts(run: str) -> dict[str, Any] | None:
    """The runs row of what is shown; None while the engine is starting."""
    current = state.session()
    if current is None:
        return None
    run_id = current.run_id if run == LIVE else run
    if run_id is None:
        return None
    from telemetry.queries.live import run as run_row

    with current.store.reader() as reader:
        return run_row(reader, run_id)
