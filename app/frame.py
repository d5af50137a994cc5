"""The frame of every page: toolbar, the headline sentence, and the legend beside its controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from app import new_run, scene_menu, state, window_choice
from app.badge import badge, run_facts
from app.follow import changed, follow
from app.live.component import html, live, redraw
from app.live.views import LIVE
from app.panels import markup
from app.panels.modelled import is_modelled, short_device
from app.race import races
from telemetry.queries.live import past_runs

REFRESH_S = 1.0
# Controls are drawn again when the engine changes (`redraw`); by the clock only so that none that
# missed it, in a tab whose stream was cut, stays wrong.
CONTROLS_S = 10.0


@dataclass(frozen=True, slots=True)
class Frame:
    """What a page needs to know: which view, which run, and which window of steps it shows."""

    view: str
    run: str
    window: dict[str, str] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        return self.run == LIVE

    def params(self, **more: str) -> dict[str, str]:
        """Parameters of the stream: all mounts of a page use the same ones and share it."""
        return {"run": self.run, **self.window, **more}


def frame(view: str) -> Frame:
    """Draw the toolbar; the page then draws headline, controls and panels."""
    st.session_state["phase"] = _phase()
    window_choice.remember()
    scene_menu.enter(view)
    with st.container(
        key="toolbar", horizontal=True, vertical_alignment="center", gap="small", wrap=False
    ):
        run = _run_selector()
        _engine_controls(run == LIVE)
        scene_menu.menu()
        badge(run)
    new_run.offer(st.session_state.pop("new_run", None))
    window = window_choice.params(run)
    window_choice.write_address(run, window)
    return Frame(view, run, window)


def _phase() -> str:
    """Where the engine is, and which; whole pages are drawn again when it changes.

    An engine says its run a moment before the run's row is committed, which the badge reads.
    """
    current = state.session()
    if current is None:
        return "failed" if state.failure() else "starting"
    recorded = "recorded" if _is_recorded(current.run_id) else "unrecorded"
    return f"{current.phase} {current.run_id} {recorded}"


def _is_recorded(run_id: str | None) -> bool:
    """Whether the live run has its row; once it has, nobody asks again."""
    if run_id is None:
        return False
    if st.session_state.get("recorded_run") != run_id and run_facts(LIVE) is not None:
        st.session_state["recorded_run"] = run_id
    return st.session_state.get("recorded_run") == run_id


def headline(page: Frame, **params: str) -> None:
    """The one sentence, from the data."""
    places = [
        html("headline", 32, "1 / 1 / 3 / 2"),
        html("counter", 16, "1 / 2 / 2 / 3"),
        html("window", 16, "2 / 2 / 3 / 3"),
    ]
    live(page.view, places, page.params(**params), f"headline-{page.view}", "minmax(0,1fr) auto")


def legend(entries: Sequence[tuple[str, str, str]]) -> None:
    """See `app.panels.markup.legend`."""
    st.html(markup.legend(entries))


def runs() -> dict[str, str]:
    """Choices of the run selector: the live run first, then the recorded ones of this database."""
    current = state.session()
    names = {LIVE: "● live run"}
    if current is None:
        return names
    with current.store.reader() as reader:
        rows = past_runs(reader).to_dict("records")
    for row in rows:
        if row["run_id"] == current.run_id:
            names[LIVE] = f"● live run {row['started_wall']:%H:%M}{_modelled_on(row)}"
        else:
            started = f"{row['started_wall']:%d %b %H:%M}"
            name = f"{started}{_modelled_on(row)} · {row['model']} {row['dtype']}"
            names[str(row["run_id"])] = name
    return names


def _modelled_on(row: dict[Any, Any]) -> str:
    return f" · modelled {short_device(row['device'])}" if is_modelled(row) else ""


def _run_selector() -> str:
    """The choice outlives page switches, and is in the address, so that a run can be shared."""
    names = runs()
    new = new_run.ENTRIES if state.session() else {}
    wanted = st.session_state.get("shown_run") or st.query_params.get("run", LIVE)
    st.session_state["run"] = wanted if wanted in names else LIVE
    run = st.selectbox(
        "Run",
        [*names, *new],
        format_func=lambda run: names.get(run) or new.get(run, run),
        key="run",
        label_visibility="collapsed",
        width=190,
        on_change=_run_chosen,
    )
    st.session_state["shown_run"] = run
    return run


def _run_chosen() -> None:
    """Another run is shown; an entry for a new one leaves the choice as it was, and is offered."""
    choice = st.session_state["run"]
    st.session_state["new_run" if choice in new_run.ENTRIES else "shown_run"] = choice


@st.fragment(run_every=CONTROLS_S)
def _engine_controls(is_live: bool) -> None:
    """Scheduler, Pause, Step: as the engine has them, in every tab."""
    redraw("engine")
    if _phase() != st.session_state["phase"]:
        st.rerun(scope="app")  # badge, runs and prompt box were drawn for another phase
    current = state.session()
    ready, status = (current.ready, current.status) if current else (None, None)
    names = list(ready.schedulers) if ready else ["no-batching", "static", "continuous", "chunked"]
    off = not is_live or status is None
    with st.container(
        horizontal=True, width="content", vertical_alignment="center", gap="small", wrap=False
    ):
        shown = follow("scheduler", status.scheduler) if status else None
        st.segmented_control(
            "Scheduler",
            names,
            key=shown.widget if shown else "scheduler:unknown",
            default=shown.value if shown else None,
            required=shown is not None,
            disabled=off or races().holds,
            label_visibility="collapsed",
            on_change=changed,
            args=(
                "scheduler",
                shown.generation if shown else 0,
                lambda engine, name: engine.configure(scheduler=name),
            ),
        )
        _pause(current, bool(status and status.paused), off)


def _pause(current: state.Session | None, paused: bool, off: bool) -> None:
    icon = ":material/play_arrow:" if paused else ":material/pause:"
    label = "Resume" if paused else "Pause"
    if st.button(label, icon=icon, disabled=off, key="pause", width=110) and current:
        (current.resume if paused else current.pause)()
    step = st.button("Step", icon=":material/skip_next:", disabled=off or not paused, key="step")
    if step and current:
        current.step_once()
        if window_choice.release():
            st.rerun(scope="app")  # the step that was asked for is the newest one
