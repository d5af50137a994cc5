"""The words of the Interference page: headline, titles, labels and the table of who is to blame."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import pandas as pd

from app.figures.gaps import BAD
from app.panels.interference_blame import UNSEEN, Blame
from app.panels.interference_side import Found
from app.panels.markup import headline
from app.units import count, duration, three

FROZEN = 10.0
"""From so many times the baseline on a stream stands still rather than slows down."""
RARE = 0.01


def sentence(a: Found | None, b: Found) -> str:
    """The headline: the worst gap and how many were over twice the baseline, never a hidden P99."""
    return long(_strong(a or b), _counts(b) if a is None else _beside(a, b))


def long(strong: str, rest: str) -> str:
    """A headline that may need smaller letters."""
    made = headline(strong, rest)
    return f'<div class="long">{made}</div>' if len(strong) + len(rest) > 105 else made


def _beside(a: Found, b: Found) -> str:
    """What became of it on the other side: "Chunked at 64: 46 ms (×3.4, 144 gaps)"."""
    focus, before = b.focus, a.focus
    if focus is None or focus.worst_s is None:
        return f"B, {_mode(b).lower()}: {_lower(_no_prompt(b))}"
    rest = f"{_mode(b)}: {duration(focus.worst_s)} ({_times(focus)}{_many(focus.over, 'gap')})"
    if before is not None and before.ttft_s is not None and focus.ttft_s is not None:
        rest += f", TTFT {duration(before.ttft_s)} → {duration(focus.ttft_s)}"
    return f"{rest}."


def _strong(side: Found) -> str:
    focus, worst = side.focus, side.worst
    if worst is None:
        return _no_prompt(side)
    if focus is None or focus.worst_s is None:
        return _no_prompt(side)
    if focus.inflation is None:
        what = f"{_prompt(focus)} ran in a gap of {duration(focus.worst_s)}"
        return f"{what}; no baseline to hold it against yet."
    streams = _many(focus.streams, "stream")
    done = f"froze {streams}" if focus.inflation >= FROZEN else f"slowed {streams}"
    if focus.inflation < UNSEEN:
        done = f"ran beside {streams} and hardly slowed them: worst gap"
    else:
        done += " for"
    return f"{_prompt(focus)} {done} {duration(focus.worst_s)} ({_size(focus)})."


def _size(blame: Blame) -> str:
    """How much longer than the baseline, and how often: "×47.5, 8 gaps over 2×"."""
    return f"{_times(blame)}{_many(blame.over, 'gap')} over {BAD:g}×"


def _times(blame: Blame) -> str:
    """ "×47.5, ", or nothing where the longest gap has no baseline."""
    return "" if blame.inflation is None else f"×{three(blame.inflation)}, "


def _no_prompt(side: Found) -> str:
    worst = side.worst
    if worst is None:
        return "No stream has two tokens in this window yet."
    gap = f"worst gap {duration(worst['itl_s'])}{_factor(worst['inflation'])}"
    if worst["cause"] == "host":
        return f"The host, not a prompt: {gap}, in which the engine was held up."
    if pd.isna(worst["cause"]):
        return f"Worst gap {duration(worst['itl_s'])}: who shared its steps is not reported."
    return f"No prompt slowed a stream: {gap}."


def _counts(side: Found) -> str:
    """What the first sentence left out: the longest gap if it was another's, and a blind P99."""
    focus, worst, parts = side.focus, side.worst, []
    if focus is not None and worst is not None and worst["itl_s"] > (focus.worst_s or 0.0):
        whose = {"host": "the host's", "prefill": "another prompt's"}
        owner = whose.get(str(worst["cause"]), "unexplained")
        parts.append(f"The longest of all, {duration(worst['itl_s'])}, was {owner}.")
    if side.over and (focus is None or side.over > focus.over):
        parts.append(f"In all {count(side.over)} of {count(side.total)} gaps over {BAD:g}×.")
    if p99_hides(side):
        parts.append(f"P99 ({duration(side.percentile(0.99))}) hides it.")
    return " ".join(parts)


def _lower(sentence_: str) -> str:
    return sentence_[0].lower() + sentence_[1:]


def p99_hides(side: Found) -> bool:
    """Whether bad gaps are there, but so few that the 99th percentile does not see them."""
    return 0 < side.over <= RARE * side.total


def _prompt(blame: Blame) -> str:
    if blame.prompt_tokens is None:
        return f"r-{blame.request_id}"
    kind = "preempted prompt, computed again," if blame.recomputes else "prompt"
    return f"One {count(blame.prompt_tokens)}-token {kind}"


def _factor(inflation: float | None) -> str:
    return "" if inflation is None or pd.isna(inflation) else f" (×{three(inflation)})"


def _many(number: int | None, what: str) -> str:
    return f"{count(number)} {what}" if number == 1 else f"{count(number)} {what}s"


def _mode(side: Found) -> str:
    """ "Chunked at 64" or "Continuous"."""
    name = side.scheduler.capitalize() or "Unknown scheduler"
    budget = side.chunk_tokens
    return f"{name} at {budget}" if side.scheduler == "chunked" and budget else name


def title(letter: str, side: Found, standing: str) -> str:
    """Above a half: "A · continuous, pinned"."""
    mode = side.scheduler
    if mode == "chunked" and side.chunk_tokens:
        mode = f"chunked, {side.chunk_tokens} tokens a step"
    return f"{letter} · {mode} · {standing}" if letter else f"{mode} · {standing}"


def band_label(side: Found) -> str:
    """Above the band: "r-17 prefill · 19 chunks of ≤ 56 · 774 ms"."""
    focus = side.focus
    if focus is None or focus.start_s is None or focus.end_s is None:
        return ""
    took = duration(focus.end_s - focus.start_s)
    what = "recompute" if focus.recomputes else "prefill"
    if focus.steps == 1:
        return (
            f"<b>r-{focus.request_id}</b> {what} · {count(focus.largest)} tokens · 1 step · {took}"
        )
    chunks = f"{count(focus.steps)} chunks of ≤ {count(focus.largest)}"
    return f"<b>r-{focus.request_id}</b> {what} · {chunks} · {took}"


def callout(side: Found) -> tuple[float, float, str] | None:
    """At the longest gap of the focus, else of all: where, how long, "×47.5 baseline, 8 gaps"."""
    focus, rows = side.focus, side.gaps
    if focus is not None and focus.worst_s is not None:
        prompts = rows["cause"].to_numpy(dtype=object) == "prefill"
        rows = rows[prompts & (rows["itl_s"].to_numpy() == focus.worst_s)]
    if rows.empty:
        return None
    row = rows.nlargest(1, "itl_s").iloc[0]
    if pd.isna(row["inflation"]) or row["inflation"] <= BAD:
        return None
    number = focus.over if focus is not None else int(row["gaps"])
    words = f"<b>×{three(row['inflation'])}</b> baseline, {_many(number, 'gap')}"
    return float(row["x_s"]), float(row["itl_s"]), words


def baseline(side: Found) -> str:
    """What the dashed line is: "baseline 13.5 ms (decode-only, 8 streams)"."""
    gaps, known = side.gaps, np.flatnonzero(side.gaps["baseline_s"].notna().to_numpy())
    if not len(known):
        return (
            "no baseline: fewer than 5 decode-only steps at like batch and context"
            if len(gaps)
            else ""
        )
    how = gaps["baseline_from"].to_numpy(dtype=object)
    alike = known[how[known] == "median"]
    at = int((alike if len(alike) else known)[-1])
    words = "a fit on decode-only steps" if how[at] == "fit" else "decode-only"
    streams = _many(int(gaps["batch"].to_numpy()[at]), "stream")
    return f"baseline {duration(gaps['baseline_s'].to_numpy()[at])} ({words}, {streams})"


# --- the table ---

_COLUMNS = (
    "run",
    "request",
    "prompt tokens",
    "steps",
    "streams hit",
    "worst ITL",
    "inflation",
    f"gaps over {BAD:g}×",
    "P99 ITL",
    "stream-s lost",
)


def table(sides: Sequence[tuple[str, Found]]) -> str:
    """Who is to blame on each side: (name, side) each; one side needs no name."""
    skipped = 0 if len(sides) > 1 else 1
    head = "".join(f"<th>{escape(c)}</th>" for c in _COLUMNS[skipped:])
    rows = "".join(
        _row(name, side, blame, skipped) for name, side in sides for blame in side.blames
    )
    body = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    kind = "" if skipped else " sides"
    return f'<div class="blame{kind}"><table>{body}</table></div>'


_WHO = {"host": "host: engine held up", "unexplained": "unexplained"}


def _row(name: str, side: Found, blame: Blame, skipped: int) -> str:
    first = side.blames[0] is blame
    who = _WHO.get(blame.kind) or f"r-{blame.request_id}" + (" injected" if blame.injected else "")
    if blame.kind == "others":
        who = _many(blame.many, "other prompt")
    elif not side.reported["sequence_steps"]:
        who = "not reported by this source"
    cells = (
        name if first else "",
        who,
        _whole(blame.prompt_tokens),
        _whole(blame.steps),
        _whole(blame.streams),
        duration(blame.worst_s) if blame.worst_s is not None else "",
        f"×{three(blame.inflation)}" if blame.inflation is not None else "",
        f"{count(blame.over)} of {count(side.total)}" if side.has_baseline else three(None),
        _p99(side) if first else "",
        three(blame.lost_s) if blame.lost_s is not None else "",
    )
    opens = ' class="first"' if first else ""
    return f"<tr{opens}>" + "".join(f"<td>{escape(c)}</td>" for c in cells[skipped:]) + "</tr>"


def _p99(side: Found) -> str:
    return duration(side.percentile(0.99)) + (" hides it" if p99_hides(side) else "")


def _whole(value: int | None) -> str:
    return "" if value is None else count(value)
