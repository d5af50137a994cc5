"""Several devices and dtypes side by side: the same question, each in a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Any
from urllib.parse import urlencode

from app.panels.what_if_state import State, question
from app.units import count, duration, three
from engine.errors import UserError
from engine.physics.whatif import answer

_LIMITS = {"capacity": "memory", "slo_memory": "reading", "slo_compute": "computing"}
_HEADS = (
    "device",
    "weights",
    "memory",
    "reading and math",
    "step",
    "bound",
    "B*",
    "largest batch",
    "tokens/s",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One device and dtype: an answer, or why there is none."""

    device: str
    dtype: str
    answer: dict[str, Any] | None
    reason: str = ""


def rows(state: State) -> list[Row]:
    """The chosen device and dtype first if it is not among those that are compared."""
    pairs = [(device, dtype) for device in state.devices for dtype in state.dtypes]
    if (state.device, state.dtype) not in pairs:
        pairs.insert(0, (state.device, state.dtype))
    return [_row(state, device, dtype) for device, dtype in pairs]


def _row(state: State, device: str, dtype: str) -> Row:
    try:
        found = answer(question(_beside(state, device, dtype)))
    except UserError as error:
        return Row(device, dtype, None, str(error))
    return Row(device, dtype, found)


def _beside(state: State, device: str, dtype: str) -> State:
    """The same question of another device: rates and a price that were given are the first's."""
    given = ("peak_tflops", "bandwidth_gb", "memory_gb", "price_per_hour")
    fresh: dict[str, Any] = {} if device == state.device else dict.fromkeys(given)
    return replace(state, device=device, dtype=dtype, **fresh)


def table(found: list[Row], state: State) -> str:
    """Bars of all rows share one scale, so that lengths compare; a click takes the row over."""
    known = [r.answer for r in found if r.answer]
    longest = max((max(a["t_memory_s"], a["t_compute_s"]) for a in known), default=1.0)
    priced = state.price_per_hour is not None
    heads = (*_HEADS, *(("1M tokens out",) if priced else ()))
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(_line(row, state, longest) for row in found)
    return f'<table class="wi-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _line(row: Row, state: State, longest: float) -> str:
    priced = state.price_per_hour is not None
    here = (row.device, row.dtype) == (state.device, state.dtype)
    mark = ' class="wi-here"' if here else ""
    change = escape(urlencode({"device": row.device, "dtype": row.dtype}))
    name = row.answer["device_title"] if row.answer else row.device
    several = f"{row.answer['devices']} × " if row.answer and row.answer["devices"] > 1 else ""
    button = f'<button type="button" data-set="{change}">{escape(several + name)}</button>'
    cells = [button, escape(row.dtype)]
    if row.answer is None:
        rest = f'<td colspan="{len(_HEADS)}" class="wi-why">{escape(row.reason)}</td>'
    else:
        rest = "".join(f"<td>{c}</td>" for c in _cells(row.answer, longest, priced))
    return f"<tr{mark}>{''.join(f'<td>{c}</td>' for c in cells)}{rest}</tr>"


def _cells(a: dict[str, Any], longest: float, priced: bool) -> list[str]:
    return [
        escape(_memory(a)),
        _bars(a, longest),
        ("≥ " if a["t_kv_s"] is None else "") + duration(a["t_step_s"]),
        f"<i style='--role: var(--ss-{a['bound']})'></i>{a['bound']}",
        three(a["b_star"]),
        _largest(a),
        three(a["tokens_per_s"]),
        *_price(a, priced),
    ]


def _price(a: dict[str, Any], priced: bool) -> list[str]:
    """Nothing without a price; a dash where it is not this device's."""
    if not priced:
        return []
    return [three(a["prices"] and a["prices"]["per_million_output_tokens"])]


def _memory(a: dict[str, Any]) -> str:
    """What is needed of what is there; where it does not fit, how many devices would hold it."""
    m = a["memory"]
    needed = m["weight_bytes"] + (m["kv_bytes"] or 0)
    unknown = " + KV" if m["kv_bytes"] is None else ""
    text = f"{three(needed / 1e9)}{unknown} of {three(m['usable_bytes'] / 1e9)} GB"
    if a["fits"]:
        return text
    more = [way["devices"] for way in a["would_fit"] if way["change"] == "devices"]
    return f"{text}: needs {more[0]}" if more else f"{text}: never fits"


def _bars(a: dict[str, Any], longest: float) -> str:
    parts = (
        ("memory", 0.0, a["t_weights_s"]),
        ("cached", a["t_weights_s"], a["t_kv_s"] or 0.0),
        ("compute", 0.0, a["t_compute_s"]),
    )
    drawn = "".join(
        f'<i class="{role}" style="left:{start / longest * 100:.2f}%;'
        f'width:{length / longest * 100:.2f}%"></i>'
        for role, start, length in parts
        if length
    )
    says = f"reading {duration(a['t_memory_s'])}, math {duration(a['t_compute_s'])}"
    return f'<div class="wi-bars" title="{says}" role="img" aria-label="{says}">{drawn}</div>'


def _largest(a: dict[str, Any]) -> str:
    if a["max_batch"] is None:
        return escape(str(a["max_batch_reason"]))
    return f"{count(a['max_batch'])} <small>{_LIMITS[a['max_batch_limit']]}</small>"
