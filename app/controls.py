"""Controls that belong to pages: the generated load, the engine's limits, a person's prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import state
from app.amounts import (
    blocks_choices,
    blocks_text,
    budget_choices,
    budget_text,
    parse_blocks,
    parse_budget,
)
from app.arrivals import Arrivals, choices, parse
from app.follow import Followed, Send, changed, follow, followed, tell_refusals
from app.frame import CONTROLS_S
from app.live.component import redraw
from app.race import races
from app.units import si

if TYPE_CHECKING:
    from engine.messages import Ready, Status

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


def choice(key: str, options: Mapping[str, str]) -> str:
    """A small switch between values, each with its words; the address keeps it for a link."""
    words = st.segmented_control(
        key,
        list(options.values()),
        key=key,
        default=next(iter(options.values())),
        required=True,
        label_visibility="collapsed",
        bind="query-params",
    )
    # An address may name what is none of them: then the first, as where it names nothing.
    return next((value for value, text in options.items() if text == words), next(iter(options)))


@st.fragment(run_every=CONTROLS_S)
def load_controls(is_live: bool) -> None:
    """Workload, its arrivals, and the limits of a step, as the engine has them."""
    redraw("load")
    current = state.session()
    if current:
        tell_refusals(current, KEYS)
    with st.container(
        horizontal=True, width="content", vertical_alignment="center", gap="xsmall", wrap=False
    ):
        if current and current.ready and current.status:
            off = not is_live or races().holds
            _load_boxes(current.ready, current.status, off)
            _limit_boxes(current.ready, current.status, off)
        else:
            _unknown_boxes()


WIDTHS = {"workload": 118, "arrivals": 138, "max_batch": 106, "chunk_tokens": 116, "kv_blocks": 112}
KEYS = (*WIDTHS, "prefix_cache")


def _unknown_boxes() -> None:
    """Of an engine that has not said how it stands; not the boxes that will follow it then."""
    for key, width in WIDTHS.items():
        st.selectbox(
            key,
            [],
            key=f"{key}:unknown",
            disabled=True,
            width=width,
            label_visibility="collapsed",
            placeholder="…",
        )


def _load_boxes(ready: Ready, status: Status, off: bool) -> None:
    actual = _arrivals(status)
    workload = follow("workload", status.load.workload if status.load else _next_workload(ready))
    arrivals = follow("arrivals", str(actual))
    _select("Workload", workload, list(ready.workloads), off, _send_workload)
    _select("Load", arrivals, choices(actual), off, _send_arrivals, new=True)


def _arrivals(status: Status) -> Arrivals:
    load = status.load
    return Arrivals(False, load.concurrency, load.rate) if load else Arrivals(off=True)


def _next_workload(ready: Ready) -> str:
    """Of a load that this tab would start: what its box says."""
    control = followed("workload")
    usual = control.known.get(control.generation, ready.workloads[0])
    return str(st.session_state.get(control.widget, usual))


def _limit_boxes(ready: Ready, status: Status, off: bool) -> None:
    """Max batch, token budget (which only `chunked` has), KV blocks and the prefix cache."""
    max_batch = follow("max_batch", _batch_text(status.max_batch))
    budget = follow("chunk_tokens", budget_text(status.chunk_tokens))
    offered = follow("kv_blocks", blocks_text(status.kv_blocks))
    cache = follow("prefix_cache", status.prefix_cache)
    sizes = [_batch_text(n) for n in sorted({*MAX_BATCHES, status.max_batch})]
    blocks = blocks_choices(_capacity(ready), status.kv_blocks)
    unused = status.scheduler != "chunked"
    _select("Max batch", max_batch, sizes, off, _send_batch)
    budgets = budget_choices(status.chunk_tokens)
    _select("Token budget", budget, budgets, off or unused, _send_budget, new=True)
    _select("KV blocks", offered, blocks, off, _send_blocks, new=True)
    st.toggle(
        "prefix cache",
        cache.value,
        key=cache.widget,
        disabled=off,
        width=106,
        on_change=changed,
        args=(cache.key, cache.generation, _send_prefix_cache),
    )


def _capacity(ready: Ready) -> int:
    return ready.limits["kv_blocks_capacity"]


def _batch_text(size: int) -> str:
    return f"batch {size}"


def _select(
    label: str,
    control: Followed,
    options: list[str],
    off: bool,
    send: Send,
    new: bool = False,
) -> None:
    offered = options if control.value in options else [control.value, *options]
    st.selectbox(
        label,
        offered,
        offered.index(control.value),
        key=control.widget,
        disabled=off,
        width=WIDTHS[control.key],
        label_visibility="collapsed",
        accept_new_options=new,
        on_change=changed,
        args=(control.key, control.generation, send),
    )


def _send_batch(current: state.Session, text: str) -> None:
    current.configure(max_batch=int(text.split()[-1]))


def _send_budget(current: state.Session, text: str) -> str:
    tokens = parse_budget(text)
    current.configure(chunk_tokens=tokens)
    return budget_text(tokens)


def _send_blocks(current: state.Session, text: str) -> str | None:
    if current.ready is None:
        return None
    blocks = parse_blocks(text, _capacity(current.ready))
    current.configure(kv_blocks=blocks)
    return blocks_text(blocks)


def _send_prefix_cache(current: state.Session, on: bool) -> None:
    current.configure(prefix_cache=on)


def _send_workload(current: state.Session, workload: str) -> None:
    """With the arrivals that the engine has or was just asked for: a box may show older ones.

    A workload chosen while nothing runs starts nothing.
    """
    arrivals = followed("arrivals")
    wanted = parse(arrivals.sent) if arrivals.waits else _actual(current)
    if not wanted.off:
        current.load(workload, wanted.concurrency, wanted.rate)


def _send_arrivals(current: state.Session, text: str) -> str:
    wanted, workload = parse(text), followed("workload")
    if wanted.off:
        current.stop_load()
        return str(wanted)
    load = current.status.load if current.status else None
    running = load.workload if load and not workload.waits else workload.value
    current.load(running, wanted.concurrency, wanted.rate)
    return str(wanted)


def _actual(current: state.Session) -> Arrivals:
    return _arrivals(current.status) if current.status else Arrivals(off=True)


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
    model = ready.run.get("model")
    if ready.run.get("clock") == "modelled":
        return f"Ask a modelled {model}: its text is synthetic"
    return f"Ask {model}{size}"


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
