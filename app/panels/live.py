"""The Live page: anatomy of a step, the last 30 s of steps and tokens, five tiles."""

from __future__ import annotations

from typing import Any

import pandas as pd

from app.figures.anatomy import anatomy
from app.figures.data import known, records
from app.figures.strip import strip
from app.panels import standing
from app.panels.markup import empty, headline, shares, tile, tiles
from app.panels.modelled import took
from app.panels.view import RECORDED, Moment, Params, View
from app.theme import Theme
from app.units import count, duration, percent, three
from telemetry.queries import live as queries
from telemetry.reader import Reader

SPAN_S = 30.0
GAP_SPAN_S = 10.0


def panels(
    reader: Reader, run_id: str, params: Params, look: Theme, moment: Moment = RECORDED, /
) -> View:
    """The page for a run as it stands in the database, live or past."""
    run = queries.run(reader, run_id)
    newest = queries.newest(reader, run_id)
    if run is None or newest is None:
        return waiting_view()
    end_ns = int(newest["end_ns"])
    medians = queries.anatomy(reader, run_id)
    view = View({"anatomy": anatomy(medians, look, took(run))})
    view.figures["strip"] = _strip(reader, run_id, end_ns, look)
    still_s = standing.idle_s(reader, run_id, end_ns, moment)
    at_ns = end_ns if still_s is None else moment.now_ns
    seconds = queries.per_second(reader, run_id, at_ns, SPAN_S)
    gaps = queries.gaps(reader, run_id, at_ns, SPAN_S)
    stands = standing.sentence(newest, still_s, moment)
    view.html["headline"] = stands or _headline(newest, medians, seconds)
    now = newest if still_s is None else {**newest, **_DRAINED}
    view.html["tiles"] = _tiles(seconds, gaps, now, run, moment.paused)
    view.html["counter"] = f"step {count(newest['step'])}"
    if moment.paused:
        rows = records(queries.shares(reader, run_id, int(newest["step"])))
        view.html["answer"] = shares(_limit(newest), rows)
    return view


# An idle engine holds nothing, whatever its newest step held.
_DRAINED = {"n_running": 0, "n_waiting": 0, "limit_bound": "none", "kv_blocks_used": 0}


def waiting_view() -> View:
    """Before the first step."""
    text = "Type a prompt, or choose a workload and a number of streams."
    return View(
        html={
            "headline": headline("No step has run yet.", text),
            "blank": empty("Nothing runs yet", text),
            "counter": "",
        }
    )


def _strip(reader: Reader, run_id: str, end_ns: int, look: Theme) -> dict[str, Any]:
    steps, median = queries.window(reader, run_id, end_ns, SPAN_S)
    width = queries.bin_width(steps, median, SPAN_S)
    bars = queries.strip(reader, run_id, end_ns, SPAN_S, width)
    marks = queries.marks(reader, run_id, end_ns, SPAN_S)
    return strip(bars, marks, median, SPAN_S, width, look)


def _headline(newest: dict[str, Any], medians: pd.DataFrame, seconds: pd.DataFrame) -> str:
    rate = float(seconds["tokens"].iloc[-1])
    running = int(newest["n_running"])
    streams = "1 stream" if running == 1 else f"{running} streams"
    decode = medians[medians["phase"] == "decode"]
    if decode.empty:
        return headline(f"{streams}: {three(rate)} tokens/s.", "No decode-only step yet.")
    step = decode.iloc[0]
    each = duration(float(step["t_step_s"]))
    strong = f"{newest['scheduler']}, {streams}: {three(rate)} tokens/s at {each} a step."
    return headline(strong, _why(step))


def _why(step: pd.Series[Any]) -> str:
    """What the median decode step is spent on; modelled floors against the measured time."""
    memory, compute = known(step["t_memory_s"]), known(step["t_compute_s"])
    if memory is None or compute is None:
        return "Peaks are not reported by this source."
    total = float(step["t_step_s"])
    if memory >= compute:
        return (
            f"Reading takes at least {duration(memory)} ({percent(memory / total)} of it), "
            f"the math {duration(compute)}."
        )
    return (
        f"The math takes at least {duration(compute)} ({percent(compute / total)} of it), "
        f"reading {duration(memory)}."
    )


def _tiles(
    seconds: pd.DataFrame,
    gaps: pd.DataFrame,
    newest: dict[str, Any],
    run: dict[str, Any],
    paused: bool,
) -> str:
    worst_of = gaps.set_index("second")["gap_s"]
    by_second = [known(worst_of.get(s)) for s in seconds["second"]]
    recent = [g for g in by_second[-int(GAP_SPAN_S) :] if g is not None]
    worst = max(recent) if recent else None
    slo = known(run["tpot_slo_s"])
    target = f"target {duration(slo)}" if slo is not None else "no target set"
    late = worst is not None and slo is not None and worst > slo
    cap = int(newest["batch_slots"])
    rate = 0.0 if paused else float(seconds["tokens"].iloc[-1])
    since = "paused" if paused else "last second"
    return tiles(
        [
            tile("tokens/s", three(rate), since, _series(seconds["tokens"]), "decode"),
            tile(
                "running",
                count(newest["n_running"]),
                f"of {cap} slots",
                _series(seconds["running"]),
                "decode",
            ),
            tile(
                "waiting",
                count(newest["n_waiting"]),
                _limit(newest),
                _series(seconds["waiting"]),
                "prefill",
            ),
            _kv_tile(seconds, newest),
            tile(f"worst gap, {GAP_SPAN_S:g} s", duration(worst), target, by_second, "lost", late),
        ]
    )


def _kv_tile(seconds: pd.DataFrame, newest: dict[str, Any]) -> str:
    """How full the cache is, and what came of it in the last 10 s: preemptions, else hits."""
    blocks, used = int(newest["kv_blocks_total"]), int(newest["kv_blocks_used"])
    recent = seconds.tail(int(GAP_SPAN_S))
    preempted = int(recent["preempted"].fillna(0).sum())
    hits = float(recent["cached_tokens"].fillna(0).sum())
    prompts = hits + float(recent["prompt_tokens"].fillna(0).sum())
    remark = f"{count(used)} of {count(blocks)} blocks"
    if preempted:
        remark = f"of {count(blocks)} · {count(preempted)} preempted"
    elif hits:
        remark = f"of {count(blocks)} · {percent(hits / prompts)} hits"
    series = _series(seconds["kv_blocks_used"])
    share = percent(used / blocks) if blocks else percent(None)
    return tile("KV cache", share, remark, series, "cached", preempted > 0)


_LIMITS = {"tokens": "token budget", "blocks": "KV blocks"}


def _limit(newest: dict[str, Any]) -> str:
    bound = str(newest["limit_bound"])
    return "nothing held back" if bound == "none" else f"limited by: {_LIMITS.get(bound, bound)}"


def _series(values: pd.Series[Any]) -> list[float | None]:
    return [known(v) for v in values]
