"""Controls that belong to pages: the generated load, max batch, and a person's prompt."""

from __future__ import annotations

from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import state
from app.arrivals import OFF, Arrivals, ArrivalsError, choices, parse
from app.follow import changed, follow
from app.frame import REFRESH_S
from app.units import si

MAX_BATCHES = (1, 2, 4, 8, 10, 16, 24, 32, 48, 64)
PRESETS = {
    "Why is the sky blue?": "Why is the sky blue?",
    "A short story": "Write a short story about a lighthouse keeper.",
    "Explain KV caches": "Explain what a key-value cache does in a language model.",
}
MAX_TOKENS = 160


def controls_row() -> DeltaGenerator:
    """One line for a page's controls and the legend beside them."""
    return st.container(
        key="controls", horizontal=True, vertical_alignment="center", gap="small", wrap=False
    )


@st.fragment(run_every=REFRESH_S)
def load_controls(is_live: bool) -> None:
    """Workload, its arrivals, and max batch, as the engine has them."""
    current = state.session()
    ready, status = (current.ready, current.status) if current else (None, None)
    off = not is_live or ready is None or status is None
    workloads = list(ready.workloads) if ready else ["steady"]
    load = status.load if status else None
    actual = Arrivals(load is None, load.concurrency, load.rate) if load else Arrivals(off=True)
    if load:
        follow("workload", load.workload)
    follow("arrivals", str(actual))
    if status:
        follow("max_batch", status.max_batch)
    with st.container(
        horizontal=True, width="content", vertical_alignment="center", gap="small", wrap=False
    ):
        _select("Workload", "workload", _with(workloads, load and load.workload), off, 150)
        _select("Load", "arrivals", choices(actual), off, 165, new=True)
        sizes = _with(list(MAX_BATCHES), status and status.max_batch)
        _select("Max batch", "max_batch", sizes, off, 150)


def _with(options: list[Any], actual: Any) -> list[Any]:
    return options if actual is None or actual in options else [*options, actual]


def _select(
    label: str, key: str, options: list[Any], off: bool, width: int, new: bool = False
) -> None:
    st.selectbox(
        label,
        options,
        key=key,
        disabled=off,
        width=width,
        label_visibility="collapsed",
        accept_new_options=new,
        format_func=(lambda n: f"max batch {n}") if key == "max_batch" else str,
        on_change=changed,
        args=(key, _send_batch if key == "max_batch" else _send_load),
    )


def _send_batch(current: state.Session, size: Any) -> None:
    current.configure(max_batch=int(size))


def _send_load(current: state.Session, _: Any) -> None:
    """Both boxes make one setting; a workload chosen while nothing runs starts nothing."""
    text = str(st.session_state.get("arrivals") or OFF)
    try:
        wanted = parse(text)
    except ArrivalsError as error:
        st.session_state.pop("arrivals:sent", None)
        st.toast(str(error), icon=":material/error:")
        return
    if st.session_state.get("arrivals:sent"):
        deadline = st.session_state["arrivals:sent"][1]
        st.session_state["arrivals:sent"] = (str(wanted), deadline)
    if wanted.off:
        current.stop_load()
    else:
        current.load(st.session_state["workload"], wanted.concurrency, wanted.rate)


def ask(is_live: bool) -> None:
    """The prompt box, with presets beside it."""
    current = state.session()
    off = not is_live or current is None or current.phase != "ready"
    row = st.container(
        key="ask", horizontal=True, vertical_alignment="center", gap="small", wrap=False
    )
    with row:
        st.chat_input(_invitation(), key="asked", disabled=off, on_submit=_asked, args=("asked",))
        with st.popover("Presets", disabled=off):
            for name in PRESETS:
                st.button(name, key=name, type="tertiary", on_click=_preset, args=(name,))


def _invitation() -> str:
    """Names the model and its size, so that its answers are judged fairly."""
    current = state.session()
    ready = current.ready if current else None
    if ready is None:
        return "the model is loading"
    params = ready.model.get("total_params")
    size = f", {si(params, '')} parameters".replace(" M ", "M ") if params else ""
    return f"Ask {ready.run.get('model')}{size}"


def _preset(name: str) -> None:
    st.session_state["asked_preset"] = PRESETS[name]
    _asked("asked_preset")


def _asked(key: str) -> None:
    text, current = st.session_state.get(key), state.session()
    if not text or current is None:
        return
    try:
        current.submit_text(text, max_tokens=MAX_TOKENS)
    except Exception as error:  # a refusal is one line for the person
        st.toast(str(error), icon=":material/error:")
