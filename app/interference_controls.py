"""Controls of the Interference page: inject a prompt, pin what it did, chunk it and do it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import state, window_choice
from app.controls import load_controls
from app.frame import Frame
from app.panels import interference_window as windows
from app.replay.curve import curves, key_of
from app.units import count

if TYPE_CHECKING:
    from app.replay.worker import Job

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
BUDGETS, BUDGET = (16, 32, 64, 128, 256), 64
SPANS = (3, 6, 12, 24)
ANSWER_TOKENS = 8
_PINNED = "pinned_a"


def controls(page: Frame) -> dict[str, str]:
    """Draw them; the parameters of the view that they make."""
    current = state.session() if page.is_live else None
    off = current is None or current.phase != "ready"
    length = _choice("length", 1024, _fitting(current), "prompt {} tokens", 166)
    budget = _budget()
    st.button(
        "Inject",
        icon=":material/bolt:",
        type="primary",
        disabled=off,
        key="inject",
        on_click=_act,
        args=(_inject, length),
    )
    again = (_chunk_and_inject, length, budget)
    if st.session_state.get("show", st.query_params.get("show")) == windows.BUDGET:
        again_ = partial(ask_curve, page, again=True)
        st.button("Replay again", icon=":material/replay:", key="replay", on_click=again_)
    else:
        _pin_buttons(page)
    st.button(
        f"Chunk at {budget} and inject again", disabled=off, key="chunk", on_click=_act, args=again
    )
    show = str(
        st.segmented_control(
            "Show",
            [windows.LIVE, windows.INJECT, windows.TIME, windows.BUDGET],
            key="show",
            default=None if "show" in st.session_state else windows.LIVE,
            required=True,
            label_visibility="collapsed",
            bind="query-params",
        )
    )
    with st.popover("Set up"):
        load_controls(page.is_live)
        _choice("budget", BUDGET, BUDGETS, "chunk at {} tokens a step", 210)
        span = _choice("gap_span", int(windows.SPAN_S), SPANS, "show {} s", 210)
    params = {"show": show, "span": str(span)}
    if show == windows.BUDGET:
        return {**params, "budget": str(budget)}
    pinned = _pinned()
    return {**params, "a": pinned} if pinned else params


LEGEND = [
    ("decode", "decode, height = rate", ""),
    ("prefill", "prefill", ""),
    ("idle", "no bar = stalled", "outline"),
    ("text", "baseline", "dash"),
]
CURVE_LEGEND = [
    ("prefill", "worst", ""),
    ("decode", "median", ""),
    ("prefill", "range of replays", "pale"),
    ("text", "measured", "outline"),
]


def legend_of(params: dict[str, str]) -> list[tuple[str, str, str]]:
    """What the colours of the shown charts mean."""
    return CURVE_LEGEND if params["show"] == windows.BUDGET else LEGEND


def ask_curve(page: Frame, *, again: bool = False) -> None:
    """Replays of what the page shows, in another process; once, unless asked again."""
    from app.replay.curve_job import curve_job

    current = state.session()
    run_id = page.run if not page.is_live else current.run_id if current else None
    if current is None or run_id is None:
        return
    key = key_of(run_id, page.window)

    def make() -> tuple[Job, Mapping[str, Any]]:
        with current.store.reader() as reader:
            return curve_job(reader, key)

    curves().ask(key, make, again=again)


def _choice(key: str, usual: int, offered: tuple[int, ...], words: str, width: int) -> int:
    """A number out of a few; it outlives page switches, and is a number in the address."""
    known = key in st.session_state
    chosen = st.selectbox(
        key,
        offered,
        index=0 if known else offered.index(_restored(key, usual, offered)),
        format_func=lambda n: words.format(count(n)),
        key=key,
        width=width,
        label_visibility="collapsed",
    )
    st.session_state[f"{key}:kept"] = int(chosen or usual)
    _write(key, None if chosen == usual else str(chosen))
    return int(chosen or usual)


def _restored(key: str, usual: int, offered: tuple[int, ...]) -> int:
    """What was chosen before a page switch, or by a link; else what is offered near the usual."""
    asked = str(st.session_state.get(f"{key}:kept", st.query_params.get(key, "")))
    if asked in {str(n) for n in offered}:
        return int(asked)
    return min(offered, key=lambda n: abs(n - usual))


def _write(key: str, value: str | None) -> None:
    """The address says what is not as usual; it is written only where it changes."""
    if value is None:
        st.query_params.pop(key, None)
    elif st.query_params.get(key) != value:
        st.query_params[key] = value


def _fitting(current: state.Session | None) -> tuple[int, ...]:
    """Lengths that the model's context and the KV blocks can hold, with a short answer."""
    if current is None or current.ready is None or current.status is None:
        return LENGTHS
    limits = current.ready.limits
    room = min(limits["max_context"], current.status.kv_blocks * limits["block_size"])
    return tuple(n for n in LENGTHS if n + ANSWER_TOKENS <= room) or LENGTHS[:1]


def _budget() -> int:
    """Of the box below, which is made after the button that names it."""
    known = st.session_state.get("budget")
    return int(known) if known in BUDGETS else _restored("budget", BUDGET, BUDGETS)


def _act(do: Callable[..., None], *args: Any) -> None:
    """Send commands, then show what they do; a refusal is one line for the person."""
    current = state.session()
    if current is None:
        return
    try:
        do(current, *args)
    except Exception as error:
        st.toast(str(error), icon=":material/error:")
        return
    window_choice.release()
    if st.session_state.get("show") != windows.TIME:
        st.session_state["show"] = windows.INJECT


def _inject(current: state.Session, length: int) -> None:
    current.inject(_now("length", length), ANSWER_TOKENS)


def _chunk_and_inject(current: state.Session, length: int, budget: int) -> None:
    current.configure(scheduler="chunked", chunk_tokens=_now("budget", budget))
    current.inject(_now("length", length), ANSWER_TOKENS)


def _now(key: str, drawn: int) -> int:
    """What the box says at the click, which may be newer than what the button was drawn with."""
    return int(st.session_state.get(key) or drawn)


def _pinned() -> str | None:
    """Side A outlives page switches, and is in the address, so that a link shows the same."""
    if _PINNED not in st.session_state:
        st.session_state[_PINNED] = st.query_params.get("a")
    pinned: str | None = st.session_state[_PINNED]
    if pinned:
        st.query_params["a"] = pinned
    else:
        st.query_params.pop("a", None)
    return pinned


def _pin_buttons(page: Frame) -> None:
    if st.session_state.get(_PINNED, st.query_params.get("a")):
        st.button("Unpin A", icon=":material/keep_off:", key="unpin", on_click=_unpin)
    else:
        st.button("Pin as A", icon=":material/keep:", key="pin", on_click=_pin, args=(page,))


def _pin(page: Frame) -> None:
    """Keep the steps that B shows now."""
    current = state.session()
    run_id = current.run_id if current and page.is_live else page.run
    if current is None or run_id is None:
        return
    params = page.params(show=str(st.session_state.get("show", windows.LIVE)))
    span_s = float(st.session_state.get("gap_span", windows.SPAN_S))
    with current.store.reader() as reader:
        stretch = windows.shown(reader, run_id, params, span_s)
    if stretch is not None:
        st.session_state[_PINNED] = windows.pin(stretch)


def _unpin() -> None:
    st.session_state[_PINNED] = None
