"""The five tiles of the Live page: about now, or about the steps that somebody holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import known, plain
from app.panels.live_served import Served
from app.panels.markup import tile, tiles
from app.units import count, duration, percent, three

GAP_SPAN_S = 10.0
_LIMITS = {"tokens": "token budget", "blocks": "KV blocks"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What the tiles say beside their sparklines; None is unknown.

    facts: running, waiting, batch_slots, limit_bound, kv_blocks_used and kv_blocks_total. recent:
    rows of `live_seconds.per_second` whose hits, preemptions and worst gap count. most: the numbers
    are the largest of several steps. worst: name of the tile of the worst gap. served: None where
    the source does not tell of single requests.
    """

    tokens_per_s: float | None
    over: str
    facts: dict[str, Any]
    recent: pd.DataFrame
    most: bool
    worst: str
    served: Served | None


def five(seconds: pd.DataFrame, known_: Facts, slo_s: float | None) -> str:
    """seconds: the series of `live_seconds.per_second`; slo_s: the run's target for a gap."""
    facts, most = known_.facts, "at most, " if known_.most else ""
    rate = three(known_.tokens_per_s)
    running, waiting = count(facts["running"]), count(facts["waiting"])
    slots = f"{most}of {count(facts['batch_slots'])} slots"
    tokens = _series(seconds["tokens"])
    served = known_.served
    met = served.rate() if served else "goodput not reported"
    return tiles(
        [
            tile("tokens/s", rate, known_.over, tokens, "decode", aside=met),
            tile("running", running, slots, _series(seconds["running"]), "decode"),
            _waiting(waiting, limit(facts), seconds, served),
            _kv(seconds, known_),
            _worst(seconds, known_, slo_s),
        ]
    )


def cost(step: dict[str, Any]) -> str:
    """What a step took and of what that is made, each term by itself where it is known."""
    memory, compute = known(step["t_memory_s"]), known(step["t_compute_s"])
    parts = []
    if memory is not None and compute is not None:
        floor, what = (memory, "reading") if memory >= compute else (compute, "math")
        parts.append(f"{what} at least {duration(floor)}")
    slower, host = known(step["t_inefficiency_s"]), known(step["t_host_s"])
    if slower is not None:
        parts.append(f"below roof {duration(slower)}")
    if host is not None:
        parts.append(f"host {duration(host)}")
    return f"it took {duration(float(step['t_step_s']))}: {', '.join(parts)}"


def _waiting(waiting: str, bound: str, seconds: pd.DataFrame, served: Served | None) -> str:
    """What waiting does to the first token stands beside it."""
    series, late = _series(seconds["waiting"]), bool(served and served.late)
    aside = served.first_token() if served else ""
    return tile("waiting", waiting, bound, series, "prefill", late, aside)


def limit(facts: dict[str, Any]) -> str:
    """What kept a step from holding more."""
    bound = str(facts["limit_bound"])
    return "nothing held back" if bound == "none" else f"limited by: {_LIMITS.get(bound, bound)}"


def _worst(seconds: pd.DataFrame, known_: Facts, slo_s: float | None) -> str:
    worst = max((g for g in _series(known_.recent["gap_s"]) if g is not None), default=None)
    target = f"target {duration(slo_s)}" if slo_s is not None else "no target set"
    late = worst is not None and slo_s is not None and worst > slo_s
    return tile(known_.worst, duration(worst), target, _series(seconds["gap_s"]), "lost", late)


def _kv(seconds: pd.DataFrame, known_: Facts) -> str:
    """How full the cache is, and what came of it: preemptions, else hits."""
    total, used = known(known_.facts["kv_blocks_total"]), known(known_.facts["kv_blocks_used"])
    series = _series(seconds["kv_blocks_used"])
    if total is None or used is None:
        return tile("KV cache", percent(None), "not reported by this source", series, "cached")
    preempted = _sum(known_.recent["preempted"])
    hits = _sum(known_.recent["cached_tokens"])
    prompts = hits + _sum(known_.recent["prompt_tokens"])
    remark = f"{'at most ' if known_.most else ''}{count(used)} of {count(total)} blocks"
    if preempted:
        remark = f"of {count(total)} · {count(preempted)} preempted"
    elif hits:
        remark = f"of {count(total)} · {percent(hits / prompts)} hits"
    share = percent(used / total) if total else percent(None)
    return tile("KV cache", share, remark, series, "cached", preempted > 0)


def _sum(values: pd.Series[Any]) -> float:
    return sum(v for v in plain(values) if v is not None)


def _series(values: pd.Series[Any]) -> list[float | None]:
    return plain(values)
