"""On the Scheduling page: what another schedule would have done to the run that is shown."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import state
from app.amounts import budget_choices, parse_budget
from app.frame import REFRESH_S, Frame
from app.panels import replay as panel
from app.replay.jobs import Jobs, Work

if TYPE_CHECKING:
    from app.replay.worker import Job

_SCHEDULERS = ("chunked", "static", "continuous", "no-batching")
_BATCHES = ("batch as recorded", *(f"batch {n}" for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)))
_BUDGETS = (32, 64, 128, 256, 512, 1024)
_MOST_STEPS = 60_000


def ask_replay(page: Frame) -> None:
    """The question, and its answer, which is worked out in another process."""
    _panel(page.run)


@st.fragment(run_every=REFRESH_S)
def _panel(run: str) -> None:
    work: Work | None = st.session_state.get("replay")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        _controls(run, busy=work is not None and work.running)
    if work is None:
        st.html(panel.invitation())
    elif work.error is not None:
        st.html(f'<div class="answer error" style="height:auto">{escape(work.error)}</div>')
    elif work.result is not None:
        drawn = panel.grid if "rows" in work.result else panel.prediction
        st.html(drawn(work.result))
    else:
        st.progress(work.done / work.total if work.total else 0.0, "replaying …")


def _controls(run: str, *, busy: bool) -> None:
    box: dict[str, Any] = {"label_visibility": "collapsed", "disabled": busy}
    scheduler = st.selectbox("Scheduler", _SCHEDULERS, key="replay_scheduler", width=150, **box)
    budget = st.selectbox(
        "Budget",
        budget_choices(256),
        index=2,
        key="replay_budget",
        width=140,
        accept_new_options=True,
        label_visibility="collapsed",
        disabled=busy or scheduler != "chunked",
    )
    batch = st.selectbox("Batch", _BATCHES, key="replay_batch", width=170, **box)
    target = st.number_input(
        "Worst gap, ms", 1, 60_000, None, key="replay_target", width=170,
        placeholder="target gap, ms", **box,
    )  # fmt: skip
    asked = {"scheduler": scheduler, "chunk_tokens": budget, "max_batch": batch}
    if st.button("Predict", key="replay_predict", disabled=busy, type="primary"):
        _start(run, asked, None, sweep=False)
    if st.button("Sweep budgets", key="replay_sweep", disabled=busy):
        _start(run, asked, target, sweep=True)


def _start(run: str, asked: dict[str, Any], target_ms: int | None, *, sweep: bool) -> None:
    """Read the recording here, hand it to a worker; a refusal is one line for the person."""
    try:
        job = _job(run, asked, target_ms, sweep=sweep)
    except ValueError as error:
        st.session_state["replay"] = Work(error=str(error))
    else:
        jobs: Jobs = state.once("replays", Jobs)
        st.session_state["replay"] = jobs.start(job)
    st.rerun(scope="fragment")


def _job(run: str, asked: dict[str, Any], target_ms: int | None, *, sweep: bool) -> Job:
    from app.live.views import LIVE
    from app.replay.recorded import describe, read_recording
    from app.replay.sweep import Grid, Targets
    from app.replay.worker import Job

    current = state.session()
    run_id = run if run != LIVE else current.run_id if current else None
    if current is None or run_id is None:
        raise ValueError("the engine is starting: ask again when it runs")
    with current.store.reader() as reader, reader.snapshot():  # the engine goes on meanwhile
        recording = read_recording(reader, run_id)
        told = describe(reader, recording)
    if len(recording.steps) > _MOST_STEPS:
        raise ValueError(
            f"the run has {len(recording.steps):,} steps: here up to {_MOST_STEPS:,} are replayed, "
            "ask stepscope replay FILE for longer ones"
        )
    batch = str(asked["max_batch"]).split()[-1]
    settings = recording.settings.changed(
        scheduler="chunked" if sweep else asked["scheduler"],
        chunk_tokens=parse_budget(str(asked["chunk_tokens"])),
        max_batch=int(batch) if batch.isdecimal() else None,
    )
    targets = Targets(itl_slo_s=target_ms / 1e3 if target_ms else None)
    grid = Grid(("chunked", "continuous"), _BUDGETS) if sweep else None
    return Job(recording, told, settings, grid, targets)
