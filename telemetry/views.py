"""The metrics as SQL views, each defined once (design.md, Vocabulary).

Pausing stops the latency clocks: durations are differences of t minus the time paused before t,
all in integer nanoseconds, so that the gaps of a request sum exactly to its decode time.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.interference import BLAME_SQL, HELD_UP, INTERFERENCE_SQL, LEAST_ALIKE

# end_ns of a pause that has not ended: later than any t_ns.
FOREVER_NS = 2**63 - 1
COMPLETED = "('stop', 'length')"


@dataclass(frozen=True, slots=True)
class View:
    """A view: its meaning for people, and the query."""

    name: str
    doc: str
    sql: str


def _paused_before(t_ns: str, pause: str) -> str:
    """SQL: nanoseconds paused before t_ns, given the last pause that began by then."""
    ended = f"least({t_ns}, {pause}.end_ns) - {pause}.start_ns"
    return f"coalesce({pause}.paused_before_ns + {ended}, 0)"


def _with_pause(row: str, t_ns: str, pause: str) -> str:
    """SQL: joins the last pause that began at or before t_ns."""
    on = f"{pause}.run_id = {row}.run_id AND {pause}.start_ns <= {row}.{t_ns}"
    return f"ASOF LEFT JOIN pauses {pause} ON {on}"


def _running_clock(row: str, t_ns: str, pause: str) -> str:
    """SQL: t_ns on the clock that stops during pauses."""
    return f"({row}.{t_ns} - {_paused_before(f'{row}.{t_ns}', pause)})"


PAUSES = View(
    "pauses",
    "times in which the engine was paused: start_ns, end_ns, and paused_before_ns, the time "
    f"paused before start_ns. While it lasts end_ns is {FOREVER_NS}. Made from the events "
    "`pause` and `resume`; a second pause while paused changes nothing.",
    f"""
WITH marks AS (
  SELECT run_id, t_ns, kind, rowid AS n,
         lag(kind) OVER (PARTITION BY run_id ORDER BY t_ns, rowid) AS kind_before
  FROM events WHERE kind IN ('pause', 'resume')),
changes AS (
  SELECT run_id, kind, t_ns AS start_ns,
         coalesce(lead(t_ns) OVER (PARTITION BY run_id ORDER BY t_ns, n), {FOREVER_NS}) AS end_ns
  FROM marks WHERE kind IS DISTINCT FROM kind_before)
SELECT run_id, start_ns, end_ns,
       coalesce(sum(end_ns - start_ns) OVER (
         PARTITION BY run_id ORDER BY start_ns
         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::BIGINT AS paused_before_ns
FROM changes WHERE kind = 'pause' AND end_ns > start_ns""",
)

# A join with the token before, not lag(): a filter on t_ns then reads only the rows it keeps.
ITL = View(
    "itl",
    "inter-token latency: one row per gap between two tokens of a request, at its later token "
    "(index 1 and up), without the time paused; it ran through the steps after_step + 1 to step",
    f"""
SELECT t.run_id, t.request_id, t."index", b.step AS after_step, t.step, t.t_ns,
       {_running_clock("t", "t_ns", "pt")} - {_running_clock("b", "t_ns", "pb")} AS itl_ns,
       itl_ns / 1e9 AS itl_s
FROM tokens t
JOIN tokens b ON b.run_id = t.run_id AND b.request_id = t.request_id AND b."index" = t."index" - 1
{_with_pause("t", "t_ns", "pt")}
{_with_pause("b", "t_ns", "pb")}""",
)

INTERFERENCE = View(
    "interference",
    "per gap between two tokens, what it lost: interference_s = itl_s - baseline_s, inflation = "
    "itl_s / baseline_s. baseline_s is the median (baseline_from 'median') of at least "
    f"{LEAST_ALIKE} decode-only steps of the run within 10% of batch and KV tokens of the step "
    "that ended the gap, else a fit of batch and KV tokens on its calmer decode-only steps, no "
    "further than half as much again beyond them ('fit'), else NULL. cause: 'prefill' with prompt "
    "tokens in a step of the gap, but 'host' where the OS took the engine's core and more than "
    "half of the loss is beyond what their math takes at the pace of decode-only steps; without "
    f"prompt tokens 'host' where the OS took the core or the gap is over {HELD_UP:g} times its "
    "baseline, else 'unexplained'; NULL where sequence_steps are unknown.",
    INTERFERENCE_SQL,
)

BLAME = View(
    "blame",
    "per gap with cause 'prefill' and culprit (each request with prompt tokens in a step of the "
    "gap): its share of the prompt FLOPs in the gap, and lost_s = share x interference_s",
    BLAME_SQL,
)

REQUEST_LATENCY = View(
    "request_latency",
    "per request, without the time paused: queue (arrival to first scheduled), TTFT (arrival to "
    "first token), decode (first to last token), E2EL (arrival to last token), and TPOT = "
    "(E2EL - TTFT) / (N - 1), NULL for N = 1. What needs the last token is NULL unless the "
    "request completed (stop or length).",
    f"""
WITH clocks AS (
  SELECT r.run_id, r.request_id, r.label, r.finish_reason, r.prompt_tokens, r.output_tokens,
         {_running_clock("r", "arrived_ns", "pa")} AS arrived,
         {_running_clock("r", "admitted_ns", "pd")} AS admitted,
         {_running_clock("r", "first_token_ns", "pf")} AS first_token,
         CASE WHEN r.finish_reason IN {COMPLETED}
              THEN {_running_clock("r", "finished_ns", "pe")} END AS finished
  FROM requests r
  {_with_pause("r", "arrived_ns", "pa")}
  {_with_pause("r", "admitted_ns", "pd")}
  {_with_pause("r", "first_token_ns", "pf")}
  {_with_pause("r", "finished_ns", "pe")})
SELECT run_id, request_id, label, finish_reason, prompt_tokens, output_tokens,
       admitted - arrived AS queue_ns, first_token - arrived AS ttft_ns,
       finished - first_token AS decode_ns, finished - arrived AS e2el_ns,
       queue_ns / 1e9 AS queue_s, ttft_ns / 1e9 AS ttft_s,
       decode_ns / 1e9 AS decode_s, e2el_ns / 1e9 AS e2el_s,
       CASE WHEN output_tokens > 1 THEN decode_ns / 1e9 / (output_tokens - 1) END AS tpot_s
FROM clocks""",
)

# Fewer slots than running sequences can be set while they run, hence greatest().
STEP_SLOTS = View(
    "step_slots",
    "per step, what its slots did: prefill, decode, recompute (a preempted sequence's tokens "
    "again), padded (run for a finished sequence), held (a running sequence that got no token), "
    "idle (slots - running - padded)",
    """
SELECT run_id, step, t_start_ns, t_step_s, scheduler, batch_slots,
       prefill_seqs AS prefill_slots, decode_seqs AS decode_slots,
       coalesce(recompute_seqs, 0) AS recompute_slots, padded_slots,
       greatest(n_running - prefill_seqs - decode_seqs - recompute_slots, 0) AS held_slots,
       greatest(batch_slots - n_running - padded_slots, 0) AS idle_slots
FROM steps""",
)

SLOT_STEPS = View(
    "slot_steps",
    "per run, waste in slot-steps (one slot for one step). padded_slot_fraction = padded "
    "slot-steps / all slot-steps, over every step: a cohort of 1 x 2,000 and 9 x 10 output tokens "
    "in ten slots gives 0.8955, its prefill step included",
    """
SELECT run_id, sum(batch_slots)::BIGINT AS slot_steps,
       sum(prefill_slots)::BIGINT AS prefill_slot_steps,
       sum(decode_slots)::BIGINT AS decode_slot_steps,
       sum(recompute_slots)::BIGINT AS recompute_slot_steps,
       sum(padded_slots)::BIGINT AS padded_slot_steps,
       sum(held_slots)::BIGINT AS held_slot_steps,
       sum(idle_slots)::BIGINT AS idle_slot_steps,
       sum(padded_slots) / nullif(sum(batch_slots), 0)::DOUBLE AS padded_slot_fraction
FROM step_slots GROUP BY run_id""",
)

PROMPT_WORK = View(
    "prompt_work",
    "per run, what became of the prompts of admitted requests: prefix_hit_tokens came from the "
    "prefix cache, computed_prompt_tokens were computed for the first time. What preemption made "
    "the engine compute again is recomputed_tokens alone: neither a hit nor useful. "
    "prefix_hit_fraction = hits / prompt tokens, NULL before a request is admitted",
    """
WITH asked AS (
  SELECT run_id, sum(preemptions)::BIGINT AS preemptions,
         sum(prompt_tokens) FILTER (admitted_ns IS NOT NULL)::BIGINT AS prompt_tokens,
         sum(cached_tokens) FILTER (admitted_ns IS NOT NULL)::BIGINT AS prefix_hit_tokens
  FROM requests GROUP BY run_id),
ran AS (
  SELECT run_id, sum(prefill_tokens)::BIGINT AS computed_prompt_tokens,
         sum(recomputed_tokens)::BIGINT AS recomputed_tokens
  FROM steps GROUP BY run_id)
SELECT run_id, prompt_tokens, prefix_hit_tokens,
       coalesce(computed_prompt_tokens, 0) AS computed_prompt_tokens,
       coalesce(recomputed_tokens, 0) AS recomputed_tokens, preemptions,
       prefix_hit_tokens / nullif(prompt_tokens, 0)::DOUBLE AS prefix_hit_fraction
FROM asked LEFT JOIN ran USING (run_id)""",
)

MAKESPAN = View(
    "makespan",
    "per run, first arrival to last token, without the time paused; NULL before the first token",
    f"""
WITH ends AS (
  SELECT run_id, arrived_ns AS t_ns, NULL AS last_ns FROM requests
  UNION ALL
  SELECT run_id, NULL, finished_ns FROM requests WHERE finish_reason IN {COMPLETED}
  UNION ALL SELECT run_id, NULL, t_ns FROM tokens),
spans AS (
  SELECT run_id, min(t_ns) AS start_ns, max(last_ns) AS end_ns FROM ends GROUP BY run_id)
SELECT s.run_id, s.start_ns, s.end_ns,
       {_running_clock("s", "end_ns", "pe")} - {_running_clock("s", "start_ns", "ps")}
         AS makespan_ns,
       makespan_ns / 1e9 AS makespan_s
FROM spans s
{_with_pause("s", "start_ns", "ps")}
{_with_pause("s", "end_ns", "pe")}""",
)

GOODPUT = View(
    "goodput",
    "per run: completed requests per second of makespan that met both the TTFT and the TPOT "
    "target (one output token has no TPOT to miss). NULL where the run lacks a target.",
    f"""
SELECT r.run_id, count(*) FILTER (finish_reason IN {COMPLETED}) AS completed,
       CASE WHEN r.ttft_slo_s IS NOT NULL AND r.tpot_slo_s IS NOT NULL THEN count(*) FILTER (
         finish_reason IN {COMPLETED} AND l.ttft_s <= r.ttft_slo_s
         AND coalesce(l.tpot_s, 0) <= r.tpot_slo_s) END AS met,
       met / nullif(m.makespan_s, 0) AS goodput
FROM runs r
JOIN request_latency l ON l.run_id = r.run_id
JOIN makespan m ON m.run_id = r.run_id
GROUP BY r.run_id, r.ttft_slo_s, r.tpot_slo_s, m.makespan_s""",
)

UTILISATION = View(
    "utilisation",
    "per run and phase: MBU = needed bytes / (time x peak bandwidth) and MFU = needed FLOPs / "
    "(time x peak FLOP/s), needed = ran - padded - recomputed. MBU of decode is phase 'decode': "
    "decode-only steps. NULL without a peak.",
    """
SELECT s.run_id, s.phase, count(*) AS steps, sum(s.t_step_s) AS time_s,
       sum(s.weight_bytes + s.kv_read_bytes + s.kv_write_bytes - s.padded_bytes
           - coalesce(s.recomputed_bytes, 0))::DOUBLE AS needed_bytes,
       sum(s.flops - s.padded_flops - coalesce(s.recomputed_flops, 0))::DOUBLE AS needed_flops,
       needed_bytes / nullif(time_s * r.peak_bandwidth, 0) AS mbu,
       needed_flops / nullif(time_s * r.peak_flops, 0) AS mfu
FROM steps s JOIN runs r ON r.run_id = s.run_id
GROUP BY s.run_id, s.phase, r.peak_bandwidth, r.peak_flops""",
)

DROPS = View(
    "drops",
    "records that were dropped rather than block the engine, per run and table",
    """
SELECT run_id, detail->>'$.table' AS "table", sum((detail->>'$.rows')::BIGINT)::BIGINT AS "rows"
FROM events WHERE kind = 'drop' GROUP BY ALL""",
)

VIEWS = (
    PAUSES,
    ITL,
    INTERFERENCE,
    BLAME,
    REQUEST_LATENCY,
    STEP_SLOTS,
    SLOT_STEPS,
    PROMPT_WORK,
    MAKESPAN,
    GOODPUT,
    UTILISATION,
    DROPS,
)
