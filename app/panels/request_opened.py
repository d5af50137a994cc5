"""One request opened: its latency as an identity, its time by cause, and its tokens as text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from app.figures.data import known, records
from app.figures.request_parts import ribbon, split_bars, tone
from app.panels.markup import headline
from app.panels.request_time import Alone, Split, split
from app.panels.view import Moment, Params, View
from app.theme import Theme
from app.units import count, duration, three
from telemetry.queries import requests as queries
from telemetry.queries.pauses import Pauses
from telemetry.reader import Reader

MOST_TOKENS = 600


def chosen(params: Params) -> int | None:
    """The request that was clicked; nonsense in an address is nobody."""
    text = params.get("request", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None


@dataclass(frozen=True, slots=True)
class Beside:
    """What a request is looked at with: its run, the pauses, a step alone, and the window's end."""

    reader: Reader
    run: dict[str, Any]
    stopped: Pauses
    alone: Alone
    end_ns: int
    moment: Moment

    @property
    def run_id(self) -> str:
        return str(self.run["run_id"])

    def row(self, request_id: int) -> dict[str, Any] | None:
        """From the store, None where the run has no such request."""
        return queries.one(self.reader, self.run_id, request_id, self.stopped)


def show(view: View, request_id: int, row: dict[str, Any] | None, by: Beside, look: Theme) -> None:
    """Add the opened request to the view. row: of `queries.one`."""
    if row is None:
        view.html["opened"] = _note(f"r-{request_id} is not a request of this run.")
        return
    tokens = queries.tokens(by.reader, by.run_id, request_id, by.stopped)
    spent = _spent(row, by)
    view.html["opened"] = _head(row) + _equation(row, tokens)
    if spent is not None:
        view.figures["split"] = split_bars(_parts(spent), _alone(row, by.alone), look)
        view.html["told"] = _told(row, spent, by.alone)
        view.html["headline"] = _headline(row, spent, by.alone)
    else:
        view.html["told"] = _note(_no_split(row))
    if tokens.empty:
        view.html["text"] = _note(_no_tokens(by.reader, by.run_id))
        return
    base = spent.base_s if spent else None
    view.figures["ribbon"] = ribbon(tokens, base, look)
    view.html["text"] = _text(tokens, base, by.run, by.moment)


def _spent(row: dict[str, Any], by: Beside) -> Split | None:
    """None before it is admitted, and where the source reports no sequence steps."""
    if row["admitted_ns"] is None or row["queue_s"] is None:
        return None
    slices = queries.slices(by.reader, by.run_id, row, by.end_ns, by.stopped)
    if slices["phase"].isna().all():
        return None
    return split(float(row["queue_s"]), slices)


def _no_split(row: dict[str, Any]) -> str:
    if row["admitted_ns"] is None:
        return "It still waits: nothing has run for it."
    return "What its steps did for it is not reported by this source."


def _no_tokens(reader: Reader, run_id: str) -> str:
    if queries.reported(reader, run_id)["tokens"]:
        return "It has emitted no token yet."
    return "Single tokens are not reported by this source."


def _parts(spent: Split) -> dict[str, float]:
    return {
        "queue": spent.queue,
        "own": spent.own,
        "others": spent.others,
        "decode": spent.decode,
        "lost": spent.lost,
        "held": spent.held,
    }


def _alone(row: dict[str, Any], alone: Alone) -> dict[str, float] | None:
    prompt, output = int(row["prompt_tokens"]), int(row["output_tokens"])
    prefill, decode = alone.prefill_s(row["own_prefill_s"], prompt), alone.decode_s(prompt, output)
    return None if prefill is None or decode is None else {"own": prefill, "decode": decode}


def _slowdown(row: dict[str, Any], spent: Split, alone: Alone) -> float | None:
    parts = _alone(row, alone)
    total = sum(parts.values()) if parts and row["output_tokens"] else 0.0
    return spent.total / total if total else None


def _headline(row: dict[str, Any], spent: Split, alone: Alone) -> str:
    name, took = f"r-{row['request_id']}", duration(spent.total)
    ended = "took" if row["finished_ns"] else "has taken"
    times = _slowdown(row, spent, alone)
    strong = f"{name} {ended} {took}" + (f", × {three(times)} its time alone." if times else ".")
    costs = {
        "in the queue": spent.queue,
        "for others' prompts": spent.others,
        "lost to preemption": spent.lost,
    }
    worst = sorted(costs.items(), key=lambda c: -c[1])[:2]
    told = [f"{duration(s)} {why}" for why, s in worst if s > 0.01 * spent.total]
    return headline(strong, f"{', '.join(told)}.".capitalize() if told else "")


def _head(row: dict[str, Any]) -> str:
    label = f" · {escape(str(row['label']))}" if row["label"] else ""
    state = str(row["finish_reason"] or ("running" if row["admitted_ns"] else "waiting"))
    cached = int(row["cached_tokens"] or 0)
    prompt = f"prompt {count(row['prompt_tokens'])}"
    prompt += f" ({count(cached)} from the prefix cache)" if cached else " (none cached)"
    times = int(row["preemptions"] or 0)
    pushed = f"preempted {count(times)} ×" if times else "never preempted"
    facts = f"{prompt} · {count(row['output_tokens'])} tokens · {pushed}"
    return (
        f'<div class="rq-head"><b>r-{row["request_id"]}</b>{label} · {escape(state)}'
        f"<div>{facts}</div></div>"
    )


def _equation(row: dict[str, Any], tokens: pd.DataFrame) -> str:
    """TTFT + (N - 1) x TPOT = E2EL with its numbers; so far, while it runs."""
    ttft, total, tpot = (known(row[k]) for k in ("ttft_s", "e2el_s", "tpot_s"))
    more = int(row["output_tokens"]) - 1
    if ttft is None:
        return '<div class="rq-equation">no first token yet</div>'
    if total is None:
        gaps = tokens["itl_s"].dropna()
        return _sum(ttft, len(gaps), known(gaps.mean()), ttft + float(gaps.sum()), "so far")
    return _sum(ttft, max(more, 0), tpot, total, "E2EL")


def _sum(ttft: float, more: int, each: float | None, total: float, name: str) -> str:
    middle = f" + {count(more)} × {three(each)}" if more and each is not None else ""
    says = "TTFT + (N − 1) × TPOT" if middle else "TTFT"
    numbers = f"<span>{three(ttft)}{middle} = <b>{three(total)} s</b></span>"
    return f'<div class="rq-equation">{numbers}<small>{says} = {name}</small></div>'


def _told(row: dict[str, Any], spent: Split, alone: Alone) -> str:
    """What the bars lean on."""
    step = alone.step_s(float(row["prompt_tokens"]))
    about = f"Alone: its own prefill, then {duration(step)} a token ({alone.source})."
    if step is None:
        about = f"Its time alone is {alone.source}."
    base = (
        f"A step without prompts takes {duration(spent.base_s)}."
        if spent.base_s is not None
        else "No like step without prompts: decode includes what prompts added."
    )
    return _note(f"{about} {base}")


def _note(text: str) -> str:
    return f'<div class="rq-note">{escape(text)}</div>'


def _text(tokens: pd.DataFrame, base: float | None, run: dict[str, Any], moment: Moment) -> str:
    """The newest tokens, each with what it cost; ids where no tokenizer is at hand."""
    kept = tokens.tail(MOST_TOKENS)
    ids = [int(i) for i in tokens["token_id"]]
    pieces = (
        moment.pieces(ids)[-len(kept) :] if moment.pieces else [f"{i} " for i in kept["token_id"]]
    )
    spans = "".join(_token(*row, base) for row in zip(records(kept), pieces, strict=True))
    notes = []
    if not moment.pieces:
        notes.append(f"The tokenizer of {escape(str(run['model']))} is not at hand: token ids.")
    if run["clock"] == "modelled":
        notes.append("Synthetic tokens of a modelled run.")
    if len(kept) < len(tokens):
        notes.append(f"The newest {count(len(kept))} of {count(len(tokens))} tokens.")
    head = f'<div class="rq-note">{" ".join(notes)}</div>' if notes else ""
    return f'<div class="rq-text">{head}{spans}</div>'


_WHY = {
    "decode": "",
    "prefill": ": others' prompts ran",
    "lost": ": preempted, computed again",
    "overhead": ": no prompt ran, so the host or the machine",
}


def _token(row: dict[str, Any], piece: str, base: float | None) -> str:
    gap, batch = known(row["itl_s"]), known(row["batch"])
    role = tone(row, base)
    took = f"{duration(gap)} after the one before" if gap is not None else "first token"
    beside = f", batch {count(batch)}" if batch is not None else ""
    about = f"token {int(row['index'])}: {took}, step {count(row['step'])}{beside}{_WHY[role]}"
    slow = f' class="on-{role}"' if role != "decode" else ""
    return f'<span{slow} title="{escape(about)}">{escape(piece)}</span>'
