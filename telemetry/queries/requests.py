"""What the Requests page shows: who waited, was computed and decoded when, and one request opened.

Times on axes are seconds before the end of the window; durations leave out the time paused, as in
`telemetry.views`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from telemetry.reader import Reader

MOST_REQUESTS = 200
MAX_SEGMENTS = 2_000
LIKE_STEPS = 4_000
_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"
# Time paused between two instants, ns; `pauses` has one row per pause.
_PAUSED = """coalesce((
    SELECT sum(greatest(least(p.end_ns, {to}) - greatest(p.start_ns, {since}), 0))
    FROM pauses p WHERE p.run_id = $run), 0)"""
_PROMPTS = "(s.prefill_tokens + s.recomputed_tokens + s.padded_prefill_tokens)"
_OWN_PREFILL = f"sum(s.t_step_s * q.tokens / nullif({_PROMPTS}, 0))"


def seen(reader: Reader, run_id: str, start_ns: int, end_ns: int) -> pd.DataFrame:
    """Requests that waited, ran or ended between two instants, at most the newest 200 of them.

    request_id, label, status (finished|running|waiting), finish_reason, prompt_tokens,
    cached_tokens, output_tokens, preemptions, arrived_s, admitted_s, first_token_s, finished_s (of
    the axis, NULL before they happen), queue_s, ttft_s, e2el_s, elapsed_s (until it finished or the
    window's end), own_prefill_s: of the steps that computed its prompt the part for its tokens.
    """
    paused = _PAUSED.format(since="r.arrived_ns", to="least(coalesce(r.finished_ns, $end), $end)")
    sql = f"""
    WITH r AS (
        SELECT * FROM requests WHERE run_id = $run AND arrived_ns <= $end
        AND coalesce(finished_ns, $end) >= $start ORDER BY request_id DESC LIMIT {MOST_REQUESTS}
    ), own AS (
        SELECT q.request_id, {_OWN_PREFILL} AS own_prefill_s
        FROM sequence_steps q JOIN steps s ON s.run_id = q.run_id AND s.step = q.step
        WHERE q.run_id = $run AND q.phase = 'prefill'
        AND q.request_id >= (SELECT min(request_id) FROM r) GROUP BY 1
    ), made AS (
        SELECT request_id, count(*) AS tokens FROM tokens WHERE run_id = $run
        AND request_id IN (SELECT request_id FROM r WHERE finished_ns IS NULL) GROUP BY 1
    )
    SELECT r.request_id, r.label, r.finish_reason, r.prompt_tokens, r.cached_tokens,
           greatest(r.output_tokens, coalesce(made.tokens, 0)) AS output_tokens, r.preemptions,
           CASE WHEN r.finished_ns IS NOT NULL THEN 'finished'
                WHEN r.admitted_ns IS NOT NULL THEN 'running' ELSE 'waiting' END AS status,
           (r.arrived_ns - $end) / 1e9 AS arrived_s, (r.admitted_ns - $end) / 1e9 AS admitted_s,
           (r.first_token_ns - $end) / 1e9 AS first_token_s,
           (r.finished_ns - $end) / 1e9 AS finished_s,
           l.queue_s, l.ttft_s, l.e2el_s, own.own_prefill_s,
           (least(coalesce(r.finished_ns, $end), $end) - r.arrived_ns - {paused}) / 1e9
             AS elapsed_s
    FROM r LEFT JOIN request_latency l ON l.run_id = $run AND l.request_id = r.request_id
    LEFT JOIN own ON own.request_id = r.request_id
    LEFT JOIN made ON made.request_id = r.request_id ORDER BY r.request_id
    """
    return reader.frame(sql, {"run": run_id, "start": start_ns, "end": end_ns})


def segments(reader: Reader, run_id: str, ids: Sequence[int], end_ns: int) -> pd.DataFrame:
    """What the steps did for each of these requests: neighbouring steps of one phase merged.

    Every prefill chunk is a row of its own, unless that makes more than 2,000 rows in all.
    request_id, phase, first_step, last_step, tokens, start_s, end_s.
    """
    frame = _segments(reader, run_id, ids, end_ns, "phase IN ('prefill', 'recompute')")
    if len(frame) > MAX_SEGMENTS:
        frame = _segments(reader, run_id, ids, end_ns, "false")
    return frame


def _segments(
    reader: Reader, run_id: str, ids: Sequence[int], end_ns: int, alone: str
) -> pd.DataFrame:
    sql = f"""
    WITH cells AS (
        SELECT q.request_id, q.phase, q.step, q.tokens, s.t_start_ns, s.t_step_s, {_END} AS end_ns
        FROM sequence_steps q JOIN steps s ON s.run_id = q.run_id AND s.step = q.step
        WHERE q.run_id = $run AND q.request_id IN (SELECT unnest($ids)) AND q.phase <> 'padded'
        AND s.t_start_ns < $end
    ), marked AS (
        SELECT *, CASE WHEN NOT ({alone}) AND lag(phase) OVER own = phase
                        AND lag(step) OVER own = step - 1
                        AND t_start_ns <= lag(end_ns) OVER own + 1000000
                       THEN 0 ELSE 1 END AS opens
        FROM cells WINDOW own AS (PARTITION BY request_id ORDER BY step)
    ), numbered AS (
        SELECT *, sum(opens) OVER (PARTITION BY request_id ORDER BY step) AS island FROM marked
    )
    SELECT request_id, phase, min(step) AS first_step, max(step) AS last_step,
           sum(tokens)::BIGINT AS tokens, (min(t_start_ns) - $end) / 1e9 AS start_s,
           (max(end_ns) - $end) / 1e9 AS end_s
    FROM numbered GROUP BY request_id, island, phase ORDER BY request_id, first_step
    """
    return reader.frame(sql, {"run": run_id, "ids": list(ids), "end": end_ns})


def step_alone(reader: Reader, run_id: str) -> dict[str, Any]:
    """Decode-only steps of the newest 4,000 that ran one sequence, and how all compare with floors.

    alone_s: median time of steps at batch 1, NULL without any; alone_n: how many. ratio: median of
    time over floor of all decode-only steps, NULL without peaks; ratio_n.
    """
    sql = f"""
    SELECT median(t_step_s) FILTER (decode_seqs = 1) AS alone_s,
           count(*) FILTER (decode_seqs = 1) AS alone_n,
           median(t_step_s / nullif(greatest(t_compute_s, t_memory_s), 0)) AS ratio,
           count(greatest(t_compute_s, t_memory_s)) AS ratio_n
    FROM steps WHERE run_id = $run AND phase = 'decode' AND padded_slots = 0
    AND step > (SELECT max(step) FROM steps WHERE run_id = $run) - {LIKE_STEPS}
    """
    return reader.row(sql, {"run": run_id}) or {}


def one(reader: Reader, run_id: str, request_id: int) -> dict[str, Any] | None:
    """A request with its latencies (see the view `request_latency`); None: there is none.

    While it runs, output_tokens is what it has emitted so far. own_prefill_s as in `seen`.
    """
    sql = f"""
    SELECT r.* REPLACE (greatest(r.output_tokens, (
               SELECT count(*) FROM tokens WHERE run_id = $run AND request_id = $id
           )) AS output_tokens), l.queue_s, l.ttft_s, l.decode_s, l.e2el_s, l.tpot_s,
           (SELECT {_OWN_PREFILL} FROM sequence_steps q
            JOIN steps s ON s.run_id = q.run_id AND s.step = q.step
            WHERE q.run_id = $run AND q.phase = 'prefill' AND q.request_id = $id) AS own_prefill_s
    FROM requests r LEFT JOIN request_latency l
      ON l.run_id = r.run_id AND l.request_id = r.request_id
    WHERE r.run_id = $run AND r.request_id = $id
    """
    return reader.row(sql, {"run": run_id, "id": request_id})


def slices(
    reader: Reader, run_id: str, request_id: int, admitted_ns: int, until_ns: int
) -> pd.DataFrame:
    """The time from a request's admission on, cut at the end of every step: they sum to all of it.

    step, slice_s (since the step before ended, pauses left out), phase and tokens of the request in
    the step (NULL: it had no part), next_phase (of its next part), others_tokens: prompt tokens of
    others, decode_only, decode_seqs, switches.
    """
    # Named in full: `pauses` has an end_ns of its own, and an open one never ends.
    paused = _PAUSED.format(since="cut.before_ns", to="least(cut.end_ns, $until)")
    sql = f"""
    WITH life AS (
        SELECT s.step, {_END} AS end_ns, s.phase, s.decode_seqs, s.padded_slots,
               {_PROMPTS} AS prompt_tokens, coalesce(s.involuntary_switches, 0) AS switches
        FROM steps s WHERE s.run_id = $run AND {_END} > $admitted AND t_start_ns < $until
    ), mine AS (
        SELECT step, phase, tokens FROM sequence_steps
        WHERE run_id = $run AND request_id = $id AND phase <> 'padded'
    ), cut AS (
        SELECT life.*, mine.phase AS own, mine.tokens,
               greatest(coalesce(lag(end_ns) OVER (ORDER BY step), $admitted), $admitted)
                 AS before_ns
        FROM life LEFT JOIN mine USING (step)
    )
    SELECT step, (least(end_ns, $until) - before_ns - {paused}) / 1e9 AS slice_s, own AS phase,
           tokens,
           first_value(own IGNORE NULLS) OVER (
               ORDER BY step ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next_phase,
           prompt_tokens - CASE WHEN own IN ('prefill', 'recompute') THEN tokens ELSE 0 END
             AS others_tokens,
           phase = 'decode' AS decode_only, decode_seqs, switches
    FROM cut ORDER BY step
    """
    params = {"run": run_id, "id": request_id, "admitted": admitted_ns, "until": until_ns}
    return reader.frame(sql, params)


def tokens(reader: Reader, run_id: str, request_id: int) -> pd.DataFrame:
    """Its emitted tokens: index, token_id, step, itl_s (NULL for the first), batch, …

    batch: sequences in the step that emitted it. Of all steps since the token before, also those
    that it had no part in: prompt_tokens, computed for anybody, and lost_tokens, which were its own
    ones computed again.
    """
    sql = f"""
    WITH mine AS (
        SELECT "index", token_id, step, lag(step) OVER (ORDER BY "index") AS after_step
        FROM tokens WHERE run_id = $run AND request_id = $id
    ), again AS (
        SELECT step, tokens FROM sequence_steps
        WHERE run_id = $run AND request_id = $id AND phase = 'recompute'
    ), sums AS (
        SELECT s.step, sum({_PROMPTS}) OVER (ORDER BY s.step) AS prompts,
               sum(coalesce(a.tokens, 0)) OVER (ORDER BY s.step) AS lost,
               s.prefill_seqs + s.decode_seqs + s.padded_slots + coalesce(s.recompute_seqs, 0)
                 AS batch
        FROM steps s LEFT JOIN again a USING (step)
        WHERE s.run_id = $run AND s.step BETWEEN (SELECT min(step) FROM mine)
        AND (SELECT max(step) FROM mine)
    ), gaps AS (
        SELECT "index", itl_s FROM itl WHERE run_id = $run AND request_id = $id
    )
    SELECT m."index", m.token_id, m.step, g.itl_s, now.batch,
           (now.prompts - before.prompts)::BIGINT AS prompt_tokens,
           (now.lost - before.lost)::BIGINT AS lost_tokens
    FROM mine m LEFT JOIN gaps g USING ("index") LEFT JOIN sums now ON now.step = m.step
    LEFT JOIN sums before ON before.step = m.after_step ORDER BY m."index"
    """
    return reader.frame(sql, {"run": run_id, "id": request_id})


def reported(reader: Reader, run_id: str) -> dict[str, bool]:
    """Whether the source reports requests, sequence_steps and tokens: True once it has any."""
    names = ("requests", "sequence_steps", "tokens")
    sql = "SELECT EXISTS (SELECT 1 FROM {} WHERE run_id = $run)"
    return {name: bool(reader.value(sql.format(name), {"run": run_id})) for name in names}
