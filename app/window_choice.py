"""Which steps a tab looks at: chosen on a chart, the same on every page, and in the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import state
from app.live.views import LIVE
from app.panels.window import picked_step
from telemetry.queries import windows

PARAMS = ("first", "last", "step")
_KEY = "chosen_window"
_FOLLOW = "follow"


@dataclass(frozen=True, slots=True)
class Choice:
    """Steps first to last of a run, and one of them that was clicked.

    run_id None: of the live run, whichever that is when the engine has said it.
    """

    run_id: str | None
    first: int
    last: int
    step: int | None = None

    def params(self) -> dict[str, str]:
        """As the address and the views take them."""
        both = {"first": str(self.first), "last": str(self.last)}
        return both if self.step is None else {**both, "step": str(self.step)}


def remember() -> None:
    """First thing on a page: a tab that was opened by a link takes its window from there."""
    if _KEY not in st.session_state:
        st.session_state[_KEY] = _from_address(st.query_params.to_dict())


def params(run: str) -> dict[str, str]:
    """The window as parameters of the shown run's views; {} while it follows the newest step.

    A window belongs to a run: it goes when another is shown.
    """
    choice: Choice | None = st.session_state[_KEY]
    shown = run_id(run)
    if choice is None or shown is None:
        return choice.params() if choice else {}
    if choice.run_id not in (None, shown):
        release()
        return {}
    st.session_state[_KEY] = Choice(shown, choice.first, choice.last, choice.step)
    return choice.params()


def write_address(run: str, window: Mapping[str, str]) -> None:
    """Run and window as a link says them.

    A window on the live run names that run, so that the link still opens it when another is live.
    """
    named = run if run != LIVE else (run_id(run) if window else None)
    wanted = {"run": named, **{name: window.get(name) for name in PARAMS}}
    for name, value in wanted.items():
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != value:
            st.query_params[name] = value


def release() -> bool:
    """Follow the newest step again; whether a window had been held."""
    held = st.session_state.get(_KEY) is not None
    st.session_state[_KEY] = None
    return held


def run_id(run: str) -> str | None:
    """The id of a choice of the run selector; None before there is a live run."""
    if run != LIVE:
        return run
    current = state.session()
    return current.run_id if current else None


def reported(key: str) -> None:
    """Callback of a live component: what somebody dragged over, clicked, or released."""
    value = st.session_state[key].get("window")
    run = run_id(st.session_state.get("shown_run", LIVE))
    if value == _FOLLOW:
        release()
    elif isinstance(value, Mapping) and run is not None:
        chosen = _chosen(run, value)
        if chosen is not None:
            st.session_state[_KEY] = chosen


def _chosen(run: str, value: Mapping[str, Any]) -> Choice | None:
    """A browser may send anything: what makes no sense changes nothing."""
    try:
        if "zero_ns" in value:
            steps = _steps_of_time(run, value)
        else:
            steps = int(value["first"]), int(value["last"])
        step = int(value["step"]) if value.get("step") is not None else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if steps is None:
        return None
    first, last = min(steps), max(steps)
    return Choice(run, first, last, step if step is not None else _kept(run, first, last))


def _steps_of_time(run: str, value: Mapping[str, Any]) -> tuple[int, int] | None:
    """Steps between two places on a time axis, seconds after zero_ns; None where nothing ran."""
    current = state.session()
    if current is None:
        return None
    zero_ns = int(value["zero_ns"])
    ends = sorted(zero_ns + int(float(value[name]) * 1e9) for name in ("from", "to"))
    with current.store.reader() as reader:
        return windows.steps_between(reader, run, ends[0], ends[1])


def _kept(run: str, first: int, last: int) -> int | None:
    """A clicked step stays while the new stretch has it."""
    before: Choice | None = st.session_state.get(_KEY)
    if before is None or before.run_id != run or before.step is None:
        return None
    return before.step if first <= before.step <= last else None


def _from_address(query: Mapping[str, str]) -> Choice | None:
    try:
        steps = int(query["first"]), int(query["last"])
    except (KeyError, ValueError):
        return None
    run = query.get("run")
    step = picked_step(query)
    return Choice(None if run == LIVE else run, min(steps), max(steps), step)
