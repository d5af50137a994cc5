"""The stream of requests on the Live page: who asked for how much, where it is, what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from app.figures.data import known
from app.panels.live_served import Served
from app.panels.view import Pieces, View
from app.units import count, duration
from telemetry.queries.live_requests import Requests, Tail

MOST = {"decode": 7, "prefill": 2, "waiting": 2, "ended": 5}
SHORT = 3
SHORT_PLACE = "short"
_UNREPORTED = "Single requests are not reported by this source."
_OPEN = ("decode", "prefill", "waiting")


@dataclass(frozen=True, slots=True)
class Stream:
    """What the stream is made of.

    rows: those that `chosen` picks. texts: by request, its newest text; None where the run's
    tokenizer is not at hand. synthetic: no model has said it.
    """

    rows: list[dict[str, Any]]
    tails: dict[int, Tail]
    texts: dict[int, str] | None
    served: Served
    counts: dict[str, int]
    synthetic: bool


def chosen(rows: Requests) -> list[dict[str, Any]]:
    """The newest of those that decode, of those before their first token, and of those that ended;
    of those that wait, the ones that wait longest. Newest first in each kind.
    """
    ended = np.isin(rows.state, _OPEN, invert=True)
    newest = np.argsort(-rows.request_id, kind="stable")
    last_ended = np.argsort(-rows.finished_ns, kind="stable")
    kinds = [
        (newest, rows.state == "decode", MOST["decode"]),
        (newest, rows.state == "prefill", MOST["prefill"]),
        (newest[::-1], rows.state == "waiting", MOST["waiting"]),
        (last_ended, ended, MOST["ended"]),
    ]
    picked = [at for order, which, most in kinds for at in order[which[order]][:most].tolist()]
    return [rows.row(at) for at in picked]


def counts(rows: Requests) -> dict[str, int]:
    """How many are in each state."""
    return Counter(rows.state.tolist())


def show(view: View, stream: Stream | None) -> None:
    """In short for the place of an answer that nobody asked for, and whole below all charts."""
    if stream is None:
        view.html["stream"] = f'<div class="stream">{_UNREPORTED}</div>'
    else:
        view.html |= {SHORT_PLACE: short(stream), "stream": whole(stream)}


def short(stream: Stream) -> str:
    """The first few, where no answer takes the place: those that decode, and one that ended."""
    running = [r for r in stream.rows if r["state"] in _OPEN]
    ended = [r for r in stream.rows if r["state"] not in _OPEN]
    rows = [*running[: SHORT - bool(ended)], *ended][:SHORT]
    body = "".join(_short_row(row, stream) for row in rows)
    return f'<div class="stream short">{_head(stream, "Requests")}{body}</div>'


def whole(stream: Stream) -> str:
    """All that were chosen, with their latencies against the targets."""
    body = "".join(_row(row, stream) for row in stream.rows)
    head = _head(stream, "Recent requests", stream.served.sentence())
    columns = ("request", "from", "prompt", "state", f"newest text {_textless(stream)}")
    names = "".join(f"<span>{escape(name)}</span>" for name in (*columns, "TTFT", "TPOT"))
    return f'<div class="stream">{head}<div class="row names">{names}</div>{body}</div>'


def _textless(stream: Stream) -> str:
    return "" if stream.texts is not None else "(this run's tokenizer is not at hand)"


def _head(stream: Stream, title: str, more: str = "") -> str:
    mark = ' <span class="ss-modelled">synthetic text</span>' if stream.synthetic else ""
    running = stream.counts.get("decode", 0) + stream.counts.get("prefill", 0)
    facts = [f"{count(running)} running", f"{count(stream.counts.get('waiting', 0))} waiting"]
    said = " · ".join([*facts, more] if more else facts)
    return f'<div class="head"><b>{title}</b> · {escape(said)}{mark}</div>'


def _short_row(row: dict[str, Any], stream: Stream) -> str:
    cells = [_who(row), f"<span>{_prompt(row)}</span>", _state(row, stream), _text(row, stream)]
    return f'<div class="row {_kind(row)}">{"".join(cells)}</div>'


def _row(row: dict[str, Any], stream: Stream) -> str:
    served = stream.served
    cells = [
        _who(row),
        f"<span>{escape(str(row['label'] or ''))}</span>",
        f"<span>{_prompt(row)}</span>",
        _state(row, stream),
        _text(row, stream),
        _latency(known(row["ttft_s"]), served.ttft_slo_s),
        _latency(known(row["tpot_s"]), served.tpot_slo_s),
    ]
    return f'<div class="row {_kind(row)}">{"".join(cells)}</div>'


def _kind(row: dict[str, Any]) -> str:
    return str(row["state"]) if row["state"] in _OPEN else "ended"


def _who(row: dict[str, Any]) -> str:
    return f"<b>r-{int(row['request_id'])}</b>"


def _prompt(row: dict[str, Any]) -> str:
    """Its length, and how much of it the prefix cache had."""
    tokens = f"{count(row['prompt_tokens'])} prompt"
    return f"{tokens}, {count(row['cached_tokens'])} cached" if row["cached_tokens"] else tokens


def _state(row: dict[str, Any], stream: Stream) -> str:
    state, made = str(row["state"]), _made(row, stream)
    words = {
        "waiting": f"waits {duration(row['waited_s'])}",
        "prefill": "prefill",
        "decode": "decode" if made is None else f"decode {count(made)}",
        "finished": f"{count(made)} tokens",
    }
    return f"<span>{escape(words.get(state, state))}</span>"


def _made(row: dict[str, Any], stream: Stream) -> int | None:
    """By the end of the stretch; its own row says so only once it has ended."""
    tail = stream.tails.get(int(row["request_id"]))
    if tail is not None:
        return tail.made
    return None if row["state"] in _OPEN else int(known(row["output_tokens"]) or 0)


def _text(row: dict[str, Any], stream: Stream) -> str:
    """Its newest text on one line, cut at its beginning."""
    text = (stream.texts or {}).get(int(row["request_id"]))
    if text is None:
        return '<span class="text"></span>'
    caret = '<i class="caret"></i>' if row["state"] == "decode" else ""
    return f'<span class="text"><bdi dir="ltr">{escape(text)}{caret}</bdi></span>'


def texts(tails: dict[int, Tail], pieces: Pieces | None) -> dict[int, str] | None:
    """What the newest tokens of each say, with "…" for what came before them."""
    if pieces is None:
        return None
    return {request: _said(tail, pieces) for request, tail in tails.items()}


def _said(tail: Tail, pieces: Pieces) -> str:
    begins = "" if len(tail.token_ids) == tail.made else "…"
    return begins + " ".join("".join(pieces(tail.token_ids)).split())


def _latency(value_s: float | None, target_s: float | None) -> str:
    """Against its target; nothing while it is not known."""
    if value_s is None:
        return "<span></span>"
    if target_s is None or value_s <= target_s:
        return f"<span>{duration(value_s)}</span>"
    return f'<span class="late">{duration(value_s)} over {duration(target_s)}</span>'


def ids_of(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Those that may have said something."""
    return [int(r["request_id"]) for r in rows if r["state"] not in ("waiting", "prefill")]
