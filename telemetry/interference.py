"""Who slowed whom: SQL of the gaps between tokens, what each would have cost alone, and its cause.

Interference is defined per gap (design.md, Vocabulary): every step that ran between two tokens of a
stream counts, also one that the stream had no part in. The loss of a gap is its time minus its
baseline, the time of a decode-only step at like batch and context. A page's window of steps says
the same on columns (telemetry/gap_window.py).
"""

from __future__ import annotations

POOL_STEPS = 1_000
"""A window of steps takes its baselines from itself and so many steps before it."""
LEAST_ALIKE, LEAST_FITTED = 5, 20
REACH = 1.5
"""A fit is believed up to so many times beyond the batches and KV tokens that it has seen."""
HELD_UP = 2.0
"""A gap of decodes alone has its baseline's work: beyond so many times its time it was held up."""

# batch, kv_tokens: sequences that decode in a step (padding runs like them), and their contexts.
_LOADS = """
ran AS (
  SELECT run_id, step, t_step_s, phase, involuntary_switches AS switches,
         linear_flops::DOUBLE AS linear_flops, attention_flops::DOUBLE AS attention_flops,
         t_compute_s / nullif(flops, 0) AS s_per_flop, greatest(t_compute_s, t_memory_s) AS floor_s
  FROM steps),
parts AS (
  SELECT run_id, step, request_id, phase, tokens, context_tokens,
         tokens::BIGINT * computed_context_tokens + tokens::BIGINT * (tokens + 1) // 2 AS attended
  FROM sequence_steps),
loads AS (
  SELECT run_id, step, count(*) FILTER (phase IN ('decode', 'padded')) AS batch,
         coalesce(sum(context_tokens) FILTER (phase IN ('decode', 'padded')), 0)::BIGINT
           AS kv_tokens,
         sum(tokens)::DOUBLE AS tokens, sum(attended)::DOUBLE AS attended
  FROM parts GROUP BY run_id, step)"""

# Linear layers cost the same for every row, attention what each row attends to, as the engine
# counts them (engine/physics/cost.py). Without counts a token weighs as much as any other.
# floor_s: below that no roof allows a prompt's math (NULL: peaks or counts are unknown).
_PROMPTS = """
prompts AS (
  SELECT p.run_id, p.step, p.request_id, p.phase, p.tokens,
         nullif(s.linear_flops * p.tokens / l.tokens
           + s.attention_flops * p.attended / nullif(l.attended, 0), 0) AS counted,
         coalesce(counted, p.tokens) AS flops, counted * s.s_per_flop AS floor_s
  FROM parts p JOIN ran s USING (run_id, step) JOIN loads l USING (run_id, step)
  WHERE p.phase IN ('prefill', 'recompute'))"""

# Tokens of one step leave together, so gaps with the same steps are mostly equal: kept once, with
# their number.
_SPANS = """
spans AS (
  SELECT run_id, after_step, step, t_ns, itl_ns, count(*) AS gaps, list(request_id) AS streams
  FROM itl GROUP BY ALL),
stretches AS (SELECT DISTINCT run_id, after_step, step FROM spans),
blamed AS (
  SELECT w.run_id, w.after_step, w.step, p.request_id AS culprit_id, sum(p.flops) AS flops,
         sum(p.tokens)::BIGINT AS tokens, sum(p.floor_s) AS floor_s
  FROM stretches w JOIN prompts p
    ON p.run_id = w.run_id AND p.step > w.after_step AND p.step <= w.step
  GROUP BY ALL),
blame_sums AS (
  SELECT run_id, after_step, step, sum(flops) AS prompt_flops, sum(floor_s) AS prompt_floor_s
  FROM blamed GROUP BY ALL),
hosts AS (
  SELECT w.run_id, w.after_step, w.step, sum(s.switches)::BIGINT AS switches
  FROM stretches w JOIN ran s
    ON s.run_id = w.run_id AND s.step > w.after_step AND s.step <= w.step
  GROUP BY ALL)"""

# A decode-only step of batch p is like those of batches b with |p - b| <= b / 10, and is offered
# to each of them that is asked for; the window frame then finds those with like KV tokens. Whole
# numbers only. The fit is least squares on their calmer half; where all have one batch it has no
# slope over batches.
_BASELINES = f"""
alone AS (
  SELECT run_id, step, batch, kv_tokens, t_step_s, floor_s, coalesce(switches, 0) AS switches
  FROM ran JOIN loads USING (run_id, step) WHERE phase = 'decode' AND batch > 0),
paces AS (
  SELECT run_id, median(t_step_s / nullif(floor_s, 0)) AS pace FROM alone GROUP BY run_id),
asked AS (
  SELECT run_id, step, batch, kv_tokens FROM loads SEMI JOIN stretches USING (run_id, step)),
offered AS (
  SELECT a.run_id, NULL::BIGINT AS step, b.batch, a.kv_tokens, a.t_step_s
  FROM alone a JOIN (SELECT DISTINCT run_id, batch FROM asked) b
    ON b.run_id = a.run_id AND abs(a.batch - b.batch) * 10 <= b.batch
  UNION ALL
  SELECT run_id, step, batch, kv_tokens, NULL FROM asked WHERE batch > 0),
alike AS (
  SELECT run_id, step, median(t_step_s) OVER near AS median_s, count(t_step_s) OVER near AS n
  FROM offered
  WINDOW near AS (PARTITION BY run_id, batch ORDER BY kv_tokens
    RANGE BETWEEN kv_tokens // 10 PRECEDING AND kv_tokens // 10 FOLLOWING)
  QUALIFY step IS NOT NULL),
calm AS (
  SELECT run_id, avg(batch) AS b, avg(kv_tokens) AS k, avg(t_step_s) AS t,
         var_pop(batch) + 1e-6 * avg(batch) ** 2 AS bb,
         var_pop(kv_tokens) + 1e-6 * avg(kv_tokens) ** 2 AS kk,
         covar_pop(batch, kv_tokens) AS bk, covar_pop(batch, t_step_s) AS bt,
         covar_pop(kv_tokens, t_step_s) AS kt, min(batch) AS low_b, max(batch) AS high_b,
         min(kv_tokens) AS low_k, max(kv_tokens) AS high_k
  FROM alone JOIN (SELECT run_id, median(switches) AS usual FROM alone GROUP BY run_id)
    USING (run_id)
  WHERE switches <= usual GROUP BY run_id HAVING count(*) >= {LEAST_FITTED}),
fitted AS (
  SELECT l.run_id, l.step, t + ((l.batch - b) * (bt * kk - kt * bk)
           + (l.kv_tokens - k) * (kt * bb - bt * bk)) / (bb * kk - bk ** 2) AS fit_s
  FROM asked l JOIN calm c ON c.run_id = l.run_id
  WHERE l.batch BETWEEN low_b / {REACH} AND high_b * {REACH}
    AND l.kv_tokens BETWEEN low_k / {REACH} AND high_k * {REACH}),
baselines AS (
  SELECT l.run_id, l.step, l.batch, l.kv_tokens,
         CASE WHEN a.n >= {LEAST_ALIKE} THEN 'median' WHEN f.fit_s > 0 THEN 'fit' END
           AS baseline_from,
         CASE baseline_from WHEN 'median' THEN a.median_s WHEN 'fit' THEN f.fit_s END AS baseline_s
  FROM asked l
  LEFT JOIN alike a USING (run_id, step) LEFT JOIN fitted f USING (run_id, step))"""

# A prompt answers for as much as its math must take: at the peak, times how much longer than their
# floor the decode-only steps of the same time took, which a busy machine slows alike. Of a gap in
# which the OS took the core, most of whose loss is beyond that, the host is the cause. Without
# prompt tokens there is nobody else; where switches are not counted nothing is known of the host.
_JUDGED = f"""
judged AS (
  SELECT w.*, w.itl_ns / 1e9 AS itl_s, b.batch, b.kv_tokens, b.baseline_s, b.baseline_from,
         itl_s - b.baseline_s AS interference_s, itl_s / b.baseline_s AS inflation,
         s.prompt_flops, h.switches, s.prompt_floor_s * p.pace AS prompt_s,
         CASE WHEN b.run_id IS NULL THEN NULL
              WHEN s.prompt_flops IS NULL THEN
                CASE WHEN h.switches > 0 OR h.switches = 0 AND inflation > {HELD_UP}
                THEN 'host' ELSE 'unexplained' END
              WHEN h.switches > 0 AND interference_s - prompt_s > interference_s / 2 THEN 'host'
              ELSE 'prefill' END AS cause
  FROM spans w LEFT JOIN baselines b USING (run_id, step)
  LEFT JOIN blame_sums s USING (run_id, after_step, step)
  LEFT JOIN hosts h USING (run_id, after_step, step)
  LEFT JOIN paces p ON p.run_id = w.run_id)"""

_PARTS = (_LOADS, _PROMPTS, _SPANS, _BASELINES, _JUDGED)
# WITH … of `judged`, one row per kind of gap, and `blamed`, its culprits.
_WITH = "WITH " + ",".join(_PARTS)

INTERFERENCE_SQL = f"""
{_WITH}
SELECT g.run_id, g.request_id, g."index", g.after_step, g.step, g.t_ns, j.itl_s, j.batch,
       j.kv_tokens, j.baseline_s, j.baseline_from, j.interference_s, j.inflation, j.cause
FROM itl g JOIN judged j USING (run_id, after_step, step, t_ns, itl_ns)"""

BLAME_SQL = f"""
{_WITH}
SELECT g.run_id, g.request_id, g."index", g.step, b.culprit_id,
       b.flops / j.prompt_flops AS share, share * j.interference_s AS lost_s
FROM itl g JOIN judged j USING (run_id, after_step, step, t_ns, itl_ns)
JOIN blamed b USING (run_id, after_step, step) WHERE j.cause = 'prefill'"""
