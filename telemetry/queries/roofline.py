"""What the Roofline page shows: steps as points of intensity and achieved FLOP/s."""

from __future__ import annotations

import pandas as pd

from telemetry.reader import Reader

CLOUD_POINTS = 240
TRAIL_STEPS = 20
_POINT = """
    step, phase, intensity, flops / t_step_s AS achieved_flops, t_step_s, t_compute_s, t_memory_s,
    t_overhead_s, decode_seqs, prefill_tokens, padded_slots, bound
"""
_LAST = "coalesce($last, (SELECT max(step) FROM steps WHERE run_id = $run))"


def cloud(
    reader: Reader, run_id: str, span_s: float, first: int | None = None, last: int | None = None
) -> pd.DataFrame:
    """Up to about 240 steps of each phase from the newest span_s, evenly thinned by step number.

    first and last: those steps in place of the newest. Steps that beat the roof are always kept:
    hiding one would hide that a peak is wrong.
    """
    sql = f"""
    WITH recent AS (
        SELECT * FROM steps WHERE run_id = $run AND CASE WHEN $first IS NULL
        THEN t_start_ns >= (SELECT max(t_start_ns) FROM steps WHERE run_id = $run) - $span
        ELSE step BETWEEN $first AND $last END
    ), numbered AS (
        SELECT *, row_number() OVER (PARTITION BY phase ORDER BY step) AS place,
               count(*) OVER (PARTITION BY phase) AS n FROM recent WHERE t_step_s > 0
    )
    SELECT {_POINT} FROM numbered
    WHERE step % greatest(1, CAST(ceil(n / $points) AS BIGINT)) = 0 OR t_overhead_s < 0
    ORDER BY step
    """
    params = {"run": run_id, "span": int(span_s * 1e9), "first": first, "last": last}
    return reader.frame(sql, params | {"points": CLOUD_POINTS})


def trail(
    reader: Reader, run_id: str, last: int | None = None, first: int | None = None
) -> pd.DataFrame:
    """The newest 20 steps, oldest first; of those up to `last` and from `first` on."""
    sql = f"""
    SELECT {_POINT} FROM steps WHERE run_id = $run AND t_step_s > 0
    AND step > {_LAST} - $n AND step <= {_LAST} AND step >= coalesce($first, 0) ORDER BY step
    """
    return reader.frame(sql, {"run": run_id, "n": TRAIL_STEPS, "last": last, "first": first})


def decode_costs(reader: Reader, run_id: str, last: int | None = None) -> pd.DataFrame:
    """Work of one decoding sequence in the newest decode-only step that padded nothing; 0 or 1 row.

    matmul_flops and attention_flops, kv_bytes (read and written), each per sequence; weight_bytes
    of the step; decode_seqs; context_tokens, the mean context. Enough to redraw the step at any
    batch of that context. last: the newest up to that step.
    """
    sql = """
    WITH newest AS (
        SELECT * FROM steps WHERE run_id = $run AND phase = 'decode' AND padded_slots = 0
        AND decode_seqs > 0 AND step <= coalesce($last, step) ORDER BY step DESC LIMIT 1
    )
    SELECT step, decode_seqs, t_step_s, weight_bytes,
           (linear_flops + head_flops) / decode_seqs AS matmul_flops,
           attention_flops / decode_seqs AS attention_flops,
           (kv_read_bytes + kv_write_bytes) / decode_seqs AS kv_bytes,
           (SELECT avg(context_tokens) FROM sequence_steps s
            WHERE s.run_id = $run AND s.step = newest.step) AS context_tokens
    FROM newest
    """
    return reader.frame(sql, {"run": run_id, "last": last})


def measured_by_batch(
    reader: Reader,
    run_id: str,
    steps: int = 20_000,
    first: int | None = None,
    last: int | None = None,
) -> pd.DataFrame:
    """Median time of decode-only steps by their batch, over the newest steps of the run.

    Columns: batch (rows that ran, padding included), t_step_s, low_s, high_s (P10, P90), n. first
    and last: over those steps.
    """
    sql = f"""
    WITH recent AS (
        SELECT phase, decode_seqs, padded_slots, t_step_s FROM steps WHERE run_id = $run
        AND step > {_LAST} - $steps AND step <= {_LAST} AND step >= coalesce($first, 0)
    )
    SELECT decode_seqs + padded_slots AS batch, median(t_step_s) AS t_step_s,
           quantile_cont(t_step_s, 0.1) AS low_s, quantile_cont(t_step_s, 0.9) AS high_s,
           count(*) AS n
    FROM recent WHERE phase = 'decode' GROUP BY 1 HAVING count(*) >= 3 ORDER BY 1
    """
    params = {"run": run_id, "steps": steps, "first": first, "last": last}
    return reader.frame(sql, params)
