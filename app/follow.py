"""Widgets show the engine's real state, whoever changed it, and never fight the hand on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from app import state
from app.race import races
from telemetry.clock import now_ns

# A change that the engine has not confirmed by then was refused: show what is real again.
PATIENCE_S = 2.5
# A browser's timed rerun may still carry the value that a widget had before it followed: that is
# an echo and nobody's choice. Sent on, it would undo what another tab has just changed.
ECHO_S = 2.0


def follow(key: str, actual: Any) -> None:
    """Before the widget with this key is made: set it to the engine's value.

    While a change of this tab is on its way to the engine the widget keeps the new value.
    """
    sent = st.session_state.get(f"{key}:sent")
    if sent is not None and (sent[0] == actual or now_ns() >= sent[1]):
        st.session_state.pop(f"{key}:sent")
        sent = None
    shown = actual if sent is None else sent[0]
    before = st.session_state.get(key)
    if before != shown:
        st.session_state[f"{key}:left"] = (before, now_ns() + int(ECHO_S * 1e9))
    # On every run, also where nothing changed: a browser that missed the run in which a widget was
    # first set would show its first option, and send that as if somebody had chosen it.
    st.session_state[key] = shown


def changed(key: str, send: Callable[[state.Session, Any], Any]) -> None:
    """on_change of a followed widget: send its new value to the engine.

    While a race runs the controls are off: what comes nevertheless is an echo of an older value.
    send may return how the engine's confirmation will read, where a person typed it otherwise.
    """
    current, value = state.session(), st.session_state[key]
    if current is None or value is None or _is_echo(key, value) or races().holds:
        return
    st.session_state[f"{key}:sent"] = (value, now_ns() + int(PATIENCE_S * 1e9))
    try:
        confirmed = send(current, value)
        if confirmed is not None:
            deadline = st.session_state[f"{key}:sent"][1]
            st.session_state[f"{key}:sent"] = (confirmed, deadline)
    except Exception as error:  # one line for the person; the widget goes back by itself
        st.session_state.pop(f"{key}:sent", None)
        st.toast(str(error), icon=":material/error:")


def _is_echo(key: str, value: Any) -> bool:
    """Whether this is the value that the widget left when it followed the engine just now."""
    left = st.session_state.get(f"{key}:left")
    return left is not None and left[0] == value and now_ns() < left[1]


def tell_refusals(current: state.Session, keys: Sequence[str]) -> None:
    """Where the engine refused a change of this tab: say why, and show what is real at once."""
    newest = current.rejections[-1] if current.rejections else None
    seen = st.session_state.get("refusal")
    st.session_state["refusal"] = newest
    if newest is None or newest is seen:
        return
    mine = [key for key in keys if st.session_state.pop(f"{key}:sent", None)]
    if mine:
        st.toast(newest.message, icon=":material/error:")
