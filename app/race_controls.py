"""Controls of the race: what is raced, its start and its end, and which race is shown."""

from __future__ import annotations

import streamlit as st

from app import state, window_choice
from app.frame import CONTROLS_S, Frame
from app.live.component import redraw
from app.race import MOST_REQUESTS, MOST_SLOTS, Plan, RaceError, races
from telemetry.queries.race import races as recorded

_USUAL = Plan()
_NEWEST = ""


def controls(page: Frame) -> dict[str, str]:
    """Draw them; the parameters of the view that they make."""
    _run_or_cancel(page.is_live)
    if page.is_live:
        _what()
    return _which(page)


@st.fragment(run_every=CONTROLS_S)
def _run_or_cancel(is_live: bool) -> None:
    """As the race stands, in every tab."""
    redraw("race")
    running = races().running
    before = st.session_state.get("racing", running)
    st.session_state["racing"] = running
    if before != running:
        st.rerun(scope="app")  # there is another race to choose
    current = state.session()
    off = not is_live or current is None or current.phase != "ready"
    if running:
        st.button("Cancel race", icon=":material/stop:", key="cancel_race", on_click=_cancel)
        return
    st.button(
        "Run race",
        icon=":material/flag:",
        key="run_race",
        type="primary",
        disabled=off,
        on_click=_start,
    )


def _cancel() -> None:
    races().cancel()


def _start() -> None:
    """A refusal is one line for the person."""
    current = state.session()
    if current is None:
        return
    try:
        races().start(current, _plan())
    except RaceError as error:
        st.toast(str(error), icon=":material/error:")
        return
    st.session_state["race"] = _NEWEST


def _plan() -> Plan:
    """As the controls say; in the order in which the schedulers are offered."""
    chosen = st.session_state
    modes = chosen.get("race_modes") or ()
    return Plan(
        workload=str(chosen.get("race_workload") or _USUAL.workload),
        requests=int(chosen.get("race_requests") or _USUAL.requests),
        slots=int(chosen.get("race_slots") or _USUAL.slots),
        seed=int(chosen.get("race_seed") or _USUAL.seed),
        modes=tuple(name for name in _schedulers() if name in modes),
    )


def _schedulers() -> tuple[str, ...]:
    current = state.session()
    ready = current.ready if current else None
    return ready.schedulers if ready else ("no-batching", "static", "continuous", "chunked")


def _what() -> None:
    current = state.session()
    workloads = current.ready.workloads if current and current.ready else (_USUAL.workload,)
    usual = workloads.index(_USUAL.workload) if _USUAL.workload in workloads else 0
    st.selectbox(
        "Raced workload",
        workloads,
        usual,
        key="race_workload",
        width=128,
        label_visibility="collapsed",
    )
    st.pills(
        "Schedulers",
        _schedulers(),
        selection_mode="multi",
        default=None if "race_modes" in st.session_state else _USUAL.modes,
        key="race_modes",
        width="content",
        label_visibility="collapsed",
    )
    with st.popover("Set up"):
        st.number_input("Requests", 2, MOST_REQUESTS, _USUAL.requests, key="race_requests")
        st.number_input("Slots (max batch)", 1, MOST_SLOTS, _USUAL.slots, key="race_slots")
        st.number_input("Seed", 0, 10_000, _USUAL.seed, key="race_seed")
        st.caption(
            "Each scheduler gets the same requests, on an empty engine and without the prefix "
            "cache. What ran before goes on afterwards."
        )


def _which(page: Frame) -> dict[str, str]:
    """Which race of the run is shown; kept in the address, so that a link shows the same."""
    names = _names(page)
    if len(names) < 3:
        return {}
    # What was chosen or run here comes before what the address still says.
    asked = st.session_state.get("race", st.query_params.get("race", _NEWEST))
    st.session_state["race"] = asked if asked in names else _NEWEST
    chosen = st.selectbox(
        "Race", list(names), format_func=lambda name: names[name], key="race", width=210,
        label_visibility="collapsed",
    )  # fmt: skip
    if not chosen:
        st.query_params.pop("race", None)
        return {}
    st.query_params["race"] = chosen
    return {"race": chosen}


def _names(page: Frame) -> dict[str, str]:
    """Name of each race -> its words, the newest first."""
    current, run = state.session(), window_choice.run_id(page.run)
    if current is None or run is None:
        return {_NEWEST: "newest race"}
    with current.store.reader() as reader:
        rows = recorded(reader, run).to_dict("records")
    told = [
        (row["race"], f"race {number}: {row['workload']}, {row['requests']} requests")
        for number, row in enumerate(rows, 1)
    ]
    return {_NEWEST: "newest race", **dict(reversed(told))}
