"""What the Scheduling page shows: who held which place in the batch, merged in SQL."""

from __future__ import annotations

import pandas as pd

from telemetry.queries.live import since_ns
from telemetry.reader import Reader

MAX_SEGMENTS = 2_000
HEAT_COLUMNS = 240

# Segments are islands: rows of one lane with one request and phase in neighbouring steps, of which
# one starts where the other ended (pauses and idle time part them).
_SEGMENTS = """
WITH window_steps AS (
    SELECT step, t_start_ns, t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT) AS end_ns
    FROM steps WHERE run_id = $run AND t_start_ns >= $since AND t_start_ns < $end
), cells AS (
    SELECT s.step, s.request_id, s.phase, s.tokens, w.t_start_ns, w.end_ns, {lane} AS lane
    FROM sequence_steps s JOIN window_steps w USING (step) WHERE s.run_id = $run
), marked AS (
    SELECT *, CASE WHEN lag(request_id) OVER lane_order = request_id
                    AND lag(phase) OVER lane_order = phase
                    AND lag(step) OVER lane_order = step - 1
                    AND t_start_ns <= lag(end_ns) OVER lane_order + 1000000
                   THEN 0 ELSE 1 END AS opens
    FROM cells WINDOW lane_order AS (PARTITION BY lane ORDER BY step)
), numbered AS (
    SELECT *, sum(opens) OVER (PARTITION BY lane ORDER BY step) AS island FROM marked
)
SELECT lane, request_id, phase, min(step) AS first_step, max(step) AS last_step,
       (min(t_start_ns) - $end) / 1e9 AS start_s, (max(end_ns) - $end) / 1e9 AS end_s,
       sum(tokens) AS tokens
FROM numbered GROUP BY lane, island, request_id, phase
"""
_LANES = {"slot": "s.slot", "request": "s.request_id"}


def segments(
    reader: Reader, run_id: str, end_ns: int, span_s: float, lane: str = "slot"
) -> pd.DataFrame:
    """Merged segments by lane ("slot" or "request"), at most one more than MAX_SEGMENTS of them.

    Columns: lane, request_id, phase, first_step, last_step, start_s, end_s (seconds before the
    newest step's end), tokens. More rows than MAX_SEGMENTS means: draw `heat` instead.
    """
    sql = (
        _SEGMENTS.format(lane=_LANES[lane]) + f" ORDER BY lane, first_step LIMIT {MAX_SEGMENTS + 1}"
    )
    params = {"run": run_id, "end": end_ns, "since": since_ns(end_ns, span_s)}
    return reader.frame(sql, params)


def heat(
    reader: Reader, run_id: str, end_ns: int, span_s: float, lane: str = "slot"
) -> pd.DataFrame:
    """The phase that took most time in each cell of lane and 1/240 of the window.

    Columns: lane, bin (0 = oldest), phase.
    """
    sql = f"""
    WITH cells AS (
        SELECT {_LANES[lane]} AS lane, s.phase,
               CAST(floor((w.t_start_ns - $since) / $width) AS INTEGER) AS bin,
               sum(w.t_step_s) AS time_s
        FROM sequence_steps s JOIN steps w ON w.run_id = s.run_id AND w.step = s.step
        WHERE s.run_id = $run AND w.t_start_ns >= $since AND w.t_start_ns < $end GROUP BY ALL
    )
    SELECT lane, bin, arg_max(phase, time_s) AS phase FROM cells GROUP BY lane, bin
    ORDER BY lane, bin
    """
    since = since_ns(end_ns, span_s)
    width = max(1, int(span_s * 1e9 / HEAT_COLUMNS))
    params = {"run": run_id, "since": since, "end": end_ns, "width": width}
    return reader.frame(sql, params)


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


# Each step stands for the time since the step before it, so that idle time counts; where a switch
# lies between two steps, the time up to it was still held by the scheduler before.
_HELD = """
held_from AS (
    SELECT run_id, scheduler, end_ns, before,
           greatest(before_ns, CASE WHEN before <> scheduler THEN switch_ns END) AS from_ns,
           before_ns
    FROM (SELECT w.*, e.t_ns AS switch_ns,
                 coalesce(lag(w.end_ns) OVER (ORDER BY w.step), w.t_start_ns) AS before_ns,
                 lag(w.scheduler) OVER (ORDER BY w.step) AS before
          FROM window_steps w ASOF LEFT JOIN (
              SELECT t_ns FROM events WHERE run_id = $run AND kind = 'scheduler_switch'
          ) e ON e.t_ns <= w.t_start_ns)
), pieces AS (
    SELECT run_id, scheduler, from_ns, end_ns AS to_ns FROM held_from
    UNION ALL
    SELECT run_id, before, before_ns, from_ns FROM held_from WHERE from_ns > before_ns
), held AS (
    SELECT scheduler, sum(to_ns - from_ns - paused_ns) / 1e9 AS held_s
    FROM (SELECT *, coalesce((
              SELECT sum(greatest(least(p.end_ns, to_ns) - greatest(p.start_ns, from_ns), 0))
              FROM paused p), 0) AS paused_ns FROM pieces)
    GROUP BY scheduler
)"""


def summary(reader: Reader, run_id: str, end_ns: int, span_s: float) -> pd.DataFrame:
    """One row per scheduler of the window, the newest first.

    scheduler, steps, first_step, held_s (time it was in charge, idle time included, pauses left
    out), tokens (emitted), tokens_per_s (over held_s), padded_slot_fraction (padded over
    batch_slots), worst_ttft_s of requests whose first token came under it (NULL: none did),
    most_padded: most slots padded in one step; preemptions, and recomputed_tokens they led to.
    """
    sql = f"""
    WITH window_steps AS (
        SELECT *, t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT) AS end_ns
        FROM steps WHERE run_id = $run AND t_start_ns >= $since AND t_start_ns < $end
    ), paused AS (
        SELECT start_ns, end_ns FROM pauses WHERE run_id = $run AND end_ns > $since
    ), {_HELD.strip()}, made AS (
        SELECT w.scheduler, count(*) AS tokens FROM tokens t
        JOIN window_steps w ON w.step = t.step WHERE t.run_id = $run GROUP BY 1
    ), waited AS (
        SELECT w.scheduler, max(r.ttft_s) AS worst_ttft_s
        FROM request_latency r JOIN tokens t ON t.run_id = r.run_id
             AND t.request_id = r.request_id AND t."index" = 0 AND t.t_ns >= $since
        JOIN window_steps w ON w.step = t.step
        WHERE r.run_id = $run GROUP BY 1
    ), ran AS (
        SELECT scheduler, count(*) AS steps, min(step) AS first_step, max(step) AS last_step,
               max(batch_slots) AS batch_slots,
               sum(padded_slots) / sum(batch_slots) AS padded_slot_fraction,
               max(padded_slots) AS most_padded, sum(preemptions)::BIGINT AS preemptions,
               sum(recomputed_tokens)::BIGINT AS recomputed_tokens
        FROM window_steps GROUP BY scheduler
    )
    SELECT scheduler, steps, first_step, held_s, batch_slots, coalesce(tokens, 0) AS tokens,
           coalesce(tokens, 0) / held_s AS tokens_per_s, padded_slot_fraction, worst_ttft_s,
           most_padded, preemptions, recomputed_tokens
    FROM ran JOIN held USING (scheduler) LEFT JOIN made USING (scheduler)
    LEFT JOIN waited USING (scheduler)
    ORDER BY last_step DESC
    """
    params = {"run": run_id, "end": end_ns, "since": since_ns(end_ns, span_s)}
    return reader.frame(sql, params)


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
