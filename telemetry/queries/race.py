"""Races: one seeded workload through several schedulers, one after the other, in one run.

Events of kind `race` mark them: their detail holds race (its name), part (begin, then start and end
of each leg, then done or cancelled), leg (from 0), mode, and the plan: workload, requests, slots,
seed, modes. A leg's requests are those that arrived between its start and its end, but for prompts
that people typed or injected meanwhile.
"""

from __future__ import annotations

import pandas as pd

from telemetry.reader import Reader

_FOREVER_NS = 2**63 - 1
_PARTS = """
parts AS (
    SELECT detail->>'$.race' AS race, detail->>'$.part' AS part, t_ns, detail,
           TRY_CAST(detail->>'$.leg' AS INTEGER) AS leg
    FROM events WHERE run_id = $run AND kind = 'race'
)"""
_OVER = "part IN ('done', 'cancelled')"
_OURS = "coalesce(r.label, '') NOT IN ('prompt', 'inject')"


def races(reader: Reader, run_id: str) -> pd.DataFrame:
    """One row per race of the run, the oldest first.

    race, begin_ns, workload, requests, slots, seed, modes (a list of names), chunk_tokens (budget
    of a step where a mode has one), ending ("done", "cancelled", NULL: no end was recorded),
    reason (of a cancelled one).
    """
    sql = f"""
    WITH {_PARTS.strip()}, told AS (
        SELECT race, min(t_ns) AS begin_ns, arg_min(detail, t_ns) AS plan,
               any_value(part) FILTER ({_OVER}) AS ending,
               any_value(detail->>'$.reason') FILTER ({_OVER}) AS reason
        FROM parts WHERE race IS NOT NULL GROUP BY race)
    SELECT race, begin_ns, plan->>'$.workload' AS workload,
           TRY_CAST(plan->>'$.requests' AS INTEGER) AS requests,
           TRY_CAST(plan->>'$.slots' AS INTEGER) AS slots,
           TRY_CAST(plan->>'$.seed' AS INTEGER) AS seed,
           TRY_CAST(plan->>'$.chunk_tokens' AS INTEGER) AS chunk_tokens,
           plan->>'$.modes[*]' AS modes, ending, reason
    FROM told ORDER BY begin_ns
    """
    return reader.frame(sql, {"run": run_id})


def reached(reader: Reader, run_id: str, race: str, part: str, leg: int | None) -> bool:
    """Whether a mark of a race is in the store; all that the engine told before it is, too."""
    sql = f"""
    WITH {_PARTS.strip()}
    SELECT count(*) FROM parts
    WHERE race = $race AND part = $part AND leg IS NOT DISTINCT FROM $leg
    """
    return bool(reader.value(sql, {"run": run_id, "race": race, "part": part, "leg": leg}))


# Makespan and TTFT as the views of those names have them: without the time paused.
_LEGS = f"""
WITH {_PARTS.strip()}, bounds AS (
    SELECT leg, any_value(detail->>'$.mode') AS mode,
           min(t_ns) FILTER (part = 'start') AS start_ns, max(t_ns) FILTER (part = 'end') AS end_ns
    FROM parts WHERE race = $race AND leg IS NOT NULL GROUP BY leg
), legs AS (
    SELECT *, end_ns IS NOT NULL AS ended, coalesce(end_ns,
        (SELECT max(t_ns) FROM parts WHERE race = $race AND {_OVER}), {_FOREVER_NS}) AS until_ns
    FROM bounds WHERE start_ns IS NOT NULL
), asked AS (
    SELECT l.leg, r.request_id, r.arrived_ns, r.finish_reason FROM requests r
    JOIN legs l ON r.arrived_ns >= l.start_ns AND r.arrived_ns < l.until_ns
    WHERE r.run_id = $run AND {_OURS}
), counted AS (
    SELECT leg, count(*) AS requests, min(arrived_ns) AS origin_ns,
           count(*) FILTER (finish_reason IN ('stop', 'length')) AS answered
    FROM asked GROUP BY leg
), made AS (
    SELECT a.leg, count(*) AS tokens, max(t.t_ns) AS last_ns
    FROM tokens t JOIN asked a USING (request_id) WHERE t.run_id = $run GROUP BY a.leg
), waited AS (
    SELECT a.leg, max(l.ttft_s) AS worst_ttft_s
    FROM request_latency l JOIN asked a USING (request_id) WHERE l.run_id = $run GROUP BY a.leg
), ran AS (
    SELECT l.leg, count(*) AS steps, min(s.step) AS first_step, max(s.step) AS last_step,
           max(s.t_start_ns + CAST(round(s.t_step_s * 1e9) AS BIGINT)) AS now_ns,
           max(s.batch_slots) AS batch_slots, max(s.padded_slots) AS most_padded,
           sum(s.padded_slots) / sum(s.batch_slots) AS padded_slot_fraction,
           sum(s.preemptions)::BIGINT AS preemptions,
           sum(s.recomputed_tokens)::BIGINT AS recomputed_tokens
    FROM steps s JOIN legs l ON s.t_start_ns >= l.start_ns AND s.t_start_ns < l.until_ns
    WHERE s.run_id = $run GROUP BY l.leg
), timed AS (
    SELECT leg, (last_ns - origin_ns - coalesce((
        SELECT sum(greatest(least(p.end_ns, last_ns) - greatest(p.start_ns, origin_ns), 0))
        FROM pauses p WHERE p.run_id = $run), 0)) / 1e9 AS makespan_s
    FROM made JOIN counted USING (leg)
)
SELECT leg, mode, ended, start_ns, until_ns, coalesce(origin_ns, start_ns) AS origin_ns, now_ns,
       coalesce(requests, 0) AS requests, coalesce(answered, 0) AS answered,
       coalesce(tokens, 0) AS tokens, makespan_s, tokens / nullif(makespan_s, 0) AS tokens_per_s,
       worst_ttft_s, steps, first_step, last_step, batch_slots, most_padded,
       padded_slot_fraction, preemptions, recomputed_tokens
FROM legs LEFT JOIN counted USING (leg) LEFT JOIN made USING (leg) LEFT JOIN timed USING (leg)
     LEFT JOIN waited USING (leg) LEFT JOIN ran USING (leg)
ORDER BY leg
"""


def legs(reader: Reader, run_id: str, race: str) -> pd.DataFrame:
    """One row per leg that has begun, in order; a leg that records is counted so far.

    leg, mode, ended, start_ns and until_ns (its marks), origin_ns (first arrival), now_ns (end of
    its newest step), requests, answered, tokens, makespan_s (first arrival to last token),
    tokens_per_s (over it), worst_ttft_s, steps, first_step, last_step, batch_slots, most_padded,
    padded_slot_fraction (over batch slots), preemptions, recomputed_tokens. NULL: none so far.
    """
    return reader.frame(_LEGS, {"run": run_id, "race": race})


def answered(reader: Reader, run_id: str, start_ns: int, until_ns: int) -> list[int]:
    """When each answered request of a leg ended, ns, in order."""
    sql = f"""
    SELECT r.finished_ns FROM requests r WHERE r.run_id = $run AND r.arrived_ns >= $start
    AND r.arrived_ns < $until AND r.finish_reason IN ('stop', 'length') AND {_OURS}
    ORDER BY r.finished_ns
    """
    rows = reader.rows(sql, {"run": run_id, "start": start_ns, "until": until_ns})
    return [int(at) for (at,) in rows]


def pauses(reader: Reader, run_id: str, start_ns: int, until_ns: int) -> list[tuple[int, int]]:
    """Start and end of each pause that touches a stretch, ns, in order."""
    sql = """
    SELECT start_ns, end_ns FROM pauses
    WHERE run_id = $run AND end_ns > $start AND start_ns < $until ORDER BY start_ns
    """
    rows = reader.rows(sql, {"run": run_id, "start": start_ns, "until": until_ns})
    return [(int(start), int(end)) for start, end in rows]
