"""What the Scheduling page shows: who held which place in the batch, merged in SQL."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Any

import pandas as pd

from telemetry.queries.islands import merged
from telemetry.queries.live import since_ns
from telemetry.queries.pauses import Pauses, pauses_of
from telemetry.reader import Reader

MAX_SEGMENTS = 2_000
HEAT_COLUMNS = 240
# Cells of so many steps are in memory at once: a million with 256 slots.
_STEPS_AT_ONCE = 4_096
_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"
_IN_WINDOW = "t_start_ns >= $since AND t_start_ns < $end"
_LANES = {"slot": "q.slot", "request": "q.request_id"}


def segments(
    reader: Reader, run_id: str, end_ns: int, span_s: float, lane: str = "slot"
) -> pd.DataFrame:
    """Merged segments by lane ("slot" or "request"), at most one more than MAX_SEGMENTS of them.

    Columns: lane, request_id, phase, first_step, last_step, start_s, end_s (seconds before the
    newest step's end), tokens. More rows than MAX_SEGMENTS means: draw `heat` instead. Pauses and
    idle time part them (see `islands.merged`).
    """
    window = {"run": run_id, "end": end_ns, "since": since_ns(end_ns, span_s)}
    first, last = _steps_of(reader, window)
    stretches = range(first, last + 1, _STEPS_AT_ONCE)
    parts = [merged(_cells(reader, window, at, lane)) for at in stretches]
    made = merged(pd.concat(parts)) if len(parts) > 1 else parts[0]
    made = made.head(MAX_SEGMENTS + 1)
    ends = {f"{name}_s": (made[f"{name}_ns"] - end_ns) / 1e9 for name in ("start", "end")}
    return made.drop(columns=["start_ns", "end_ns"]).assign(**ends)


def _steps_of(reader: Reader, window: dict[str, Any]) -> tuple[int, int]:
    """The first and last step that start in the window; 0 and 0 where none does."""
    sql = f"SELECT min(step), max(step) FROM steps WHERE run_id = $run AND {_IN_WINDOW}"
    (first, last), *_ = reader.rows(sql, window)
    return int(first or 0), int(last or 0)


def _cells(reader: Reader, window: dict[str, Any], first: int, lane: str) -> pd.DataFrame:
    """What each sequence got in each step from `first` on, of as many as are read at once."""
    sql = f"""
    SELECT {_LANES[lane]} AS lane, q.request_id, q.phase, q.step AS first_step,
           q.step AS last_step, q.tokens, s.t_start_ns AS start_ns, {_END} AS end_ns
    FROM sequence_steps q JOIN steps s USING (step)
    WHERE q.run_id = $run AND s.run_id = $run AND {_IN_WINDOW}
    AND q.step BETWEEN $first AND $last
    """
    return reader.frame(sql, {**window, "first": first, "last": first + _STEPS_AT_ONCE - 1})


def heat(
    reader: Reader, run_id: str, end_ns: int, span_s: float, lane: str = "slot"
) -> pd.DataFrame:
    """The phase that took most time in each cell of lane and 1/240 of the window.

    Columns: lane, bin (0 = oldest), phase.
    """
    sql = f"""
    WITH cells AS (
        SELECT {_LANES[lane]} AS lane, q.phase,
               CAST(floor((w.t_start_ns - $since) / $width) AS INTEGER) AS bin,
               sum(w.t_step_s) AS time_s
        FROM sequence_steps q JOIN steps w ON w.run_id = q.run_id AND w.step = q.step
        WHERE q.run_id = $run AND w.t_start_ns >= $since AND w.t_start_ns < $end GROUP BY ALL
    )
    SELECT lane, bin, arg_max(phase, time_s) AS phase FROM cells GROUP BY lane, bin
    ORDER BY lane, bin
    """
    since = since_ns(end_ns, span_s)
    width = max(1, int(span_s * 1e9 / HEAT_COLUMNS))
    params = {"run": run_id, "since": since, "end": end_ns, "width": width}
    return reader.frame(sql, params)


def reported(reader: Reader, run_id: str) -> bool:
    """Whether the source tells who was in which step."""
    sql = "SELECT step FROM sequence_steps WHERE run_id = $run LIMIT 1"
    return bool(reader.rows(sql, {"run": run_id}))


def slots(reader: Reader, run_id: str, step: int) -> int:
    """Places in the batch of that step."""
    sql = "SELECT batch_slots FROM steps WHERE run_id = $run AND step = $step"
    return int(reader.value(sql, {"run": run_id, "step": step}))


def waiting(reader: Reader, run_id: str, end_ns: int, span_s: float) -> pd.DataFrame:
    """Queue length where it changed: x_s, step, n_waiting; the first and last step always."""
    sql = """
    WITH window_steps AS (
        SELECT step, (t_start_ns - $end) / 1e9 AS x_s, n_waiting,
               lag(n_waiting) OVER (ORDER BY step) AS before,
               lead(n_waiting) OVER (ORDER BY step) AS after
        FROM steps WHERE run_id = $run AND t_start_ns >= $since AND t_start_ns < $end
    )
    SELECT step, x_s, n_waiting FROM window_steps
    WHERE before IS NULL OR after IS NULL OR n_waiting <> before ORDER BY step
    """
    params = {"run": run_id, "end": end_ns, "since": since_ns(end_ns, span_s)}
    return reader.frame(sql, params)


def summary(reader: Reader, run_id: str, end_ns: int, span_s: float) -> pd.DataFrame:
    """One row per scheduler of the window, the newest first.

    scheduler, steps, first_step, held_s (time it was in charge, idle time included, pauses left
    out), tokens (emitted), tokens_per_s (over held_s), padded_slot_fraction (padded over
    batch_slots), worst_ttft_s of requests whose first token came under it (NULL: none did),
    most_padded: most slots padded in one step; preemptions, and recomputed_tokens they led to.
    """
    sql = f"""
    WITH window_steps AS (SELECT * FROM steps WHERE run_id = $run AND {_IN_WINDOW}),
    made AS (
        SELECT w.scheduler, count(*) AS tokens FROM tokens t
        JOIN window_steps w ON w.step = t.step WHERE t.run_id = $run GROUP BY 1
    )
    SELECT scheduler, count(*) AS steps, min(step) AS first_step, NULL::DOUBLE AS held_s,
           max(batch_slots) AS batch_slots, coalesce(any_value(made.tokens), 0) AS tokens,
           NULL::DOUBLE AS tokens_per_s,
           sum(padded_slots) / sum(batch_slots) AS padded_slot_fraction,
           NULL::DOUBLE AS worst_ttft_s, max(padded_slots) AS most_padded,
           sum(preemptions)::BIGINT AS preemptions,
           sum(recomputed_tokens)::BIGINT AS recomputed_tokens
    FROM window_steps LEFT JOIN made USING (scheduler)
    GROUP BY scheduler ORDER BY max(step) DESC
    """
    window = {"run": run_id, "end": end_ns, "since": since_ns(end_ns, span_s)}
    rows, stopped = reader.frame(sql, window), pauses_of(reader, run_id)
    rows["held_s"] = rows["scheduler"].map(_held_s(reader, window, stopped))
    rows["tokens_per_s"] = rows["tokens"] / rows["held_s"]
    rows["worst_ttft_s"] = rows["scheduler"].map(_worst_ttft_s(reader, window, stopped))
    return rows


def _held_s(reader: Reader, window: dict[str, Any], stopped: Pauses) -> dict[str, float]:
    """Seconds for which each scheduler was in charge.

    Each step stands for the time since the step before it, so that idle time counts; where a switch
    lies between two steps, the time up to it was still held by the scheduler before.
    """
    held_ns: dict[str, int] = defaultdict(int)
    before: tuple[str, int] | None = None
    for name, start_ns, switch_ns, end_ns in _turns(reader, window):
        since_ns = start_ns
        if before is not None:
            since_ns = max(before[1], switch_ns or 0)
            held_ns[before[0]] += stopped.ran_ns(before[1], since_ns)
        held_ns[name] += stopped.ran_ns(since_ns, end_ns)
        before = (name, end_ns)
    return {name: ns / 1e9 for name, ns in held_ns.items()}


def _turns(reader: Reader, window: dict[str, Any]) -> list[tuple[str, int, int | None, int]]:
    """Stretches of steps under one scheduler, in order: its name, first start, the newest switch
    before that, and last end, ns."""
    sql = f"""
    WITH turns AS (
        SELECT step, scheduler, t_start_ns, {_END} AS end_ns,
               scheduler IS DISTINCT FROM lag(scheduler) OVER (ORDER BY step) AS opens,
               scheduler IS DISTINCT FROM lead(scheduler) OVER (ORDER BY step) AS closes
        FROM steps WHERE run_id = $run AND {_IN_WINDOW}
    )
    SELECT scheduler, t_start_ns, lead(end_ns, CAST(NOT closes AS INTEGER)) OVER (ORDER BY step),
           opens FROM turns WHERE opens OR closes ORDER BY step
    """
    switches = "SELECT t_ns FROM events WHERE run_id = $run AND kind = 'scheduler_switch'"
    told = sorted(t for (t,) in reader.rows(switches, {"run": window["run"]}))
    made = []
    for name, start_ns, end_ns, opens in reader.rows(sql, window):
        if opens:
            at = bisect_right(told, start_ns)
            made.append((str(name), int(start_ns), told[at - 1] if at else None, int(end_ns)))
    return made


def _worst_ttft_s(reader: Reader, window: dict[str, Any], stopped: Pauses) -> dict[str, float]:
    """By the scheduler whose step emitted a request's first token."""
    sql = f"""
    SELECT s.scheduler, r.arrived_ns, r.first_token_ns FROM tokens t
    JOIN steps s ON s.step = t.step AND s.run_id = $run AND {_IN_WINDOW}
    JOIN requests r ON r.request_id = t.request_id AND r.run_id = $run
    WHERE t.run_id = $run AND t."index" = 0 AND t.t_ns >= $since
    """
    worst: dict[str, float] = {}
    for name, arrived_ns, first_ns in reader.rows(sql, window):
        ttft_s = stopped.ran(arrived_ns, first_ns)
        if ttft_s is not None:
            worst[name] = max(ttft_s, worst.get(name, ttft_s))
    return worst


def longest_hold(reader: Reader, run_id: str, end_ns: int, span_s: float) -> pd.DataFrame:
    """The longest stretch of steps in which the same number of slots waited for others; 0 or 1 row.

    Columns: padded_slots, decode_seqs, hold_s, start_s, end_s.
    """
    sql = """
    WITH window_steps AS (
        SELECT step, padded_slots, decode_seqs, t_start_ns,
               t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT) AS end_ns
        FROM steps WHERE run_id = $run AND t_start_ns >= $since AND t_start_ns < $end
    ), marked AS (
        SELECT *, CASE WHEN lag(padded_slots) OVER (ORDER BY step) = padded_slots
                       THEN 0 ELSE 1 END AS opens FROM window_steps
    ), numbered AS (SELECT *, sum(opens) OVER (ORDER BY step) AS island FROM marked)
    SELECT padded_slots, min(decode_seqs) AS decode_seqs, sum(end_ns - t_start_ns) / 1e9 AS hold_s,
           (min(t_start_ns) - $end) / 1e9 AS start_s, (max(end_ns) - $end) / 1e9 AS end_s
    FROM numbered WHERE padded_slots > 0 GROUP BY island, padded_slots
    ORDER BY padded_slots * hold_s DESC LIMIT 1
    """
    params = {"run": run_id, "end": end_ns, "since": since_ns(end_ns, span_s)}
    return reader.frame(sql, params)
