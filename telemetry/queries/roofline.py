"""What the Roofline page shows: steps as points of intensity and achieved FLOP/s."""

from __future__ import annotations

from typing import Any

import pandas as pd

from telemetry.reader import Reader

CLOUD_POINTS = 140
TRAIL_STEPS = 20
_POINT = """
    step, phase, intensity, flops / t_step_s AS achieved_flops, t_step_s, t_compute_s, t_memory_s,
    t_overhead_s, decode_seqs, prefill_tokens, padded_slots, bound
"""
_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"


def selected(reader: Reader, run_id: str, step: int) -> dict[str, Any] | None:
    """All that explains one step: its rows, work, bytes, floors and times; None without it.

    What its source does not report is None. end_ns: when it ended; padded_tokens: rows of padding.
    """
    sql = f"""
    SELECT step, scheduler, phase, t_step_s, {_END} AS end_ns, n_running,
           prefill_seqs + coalesce(recompute_seqs, 0) AS prompt_seqs, prefill_tokens, decode_seqs,
           decode_tokens, recomputed_tokens, padded_slots,
           padded_slots + padded_prefill_tokens AS padded_tokens, prefix_hit_tokens, flops,
           weight_bytes, kv_read_bytes + kv_write_bytes AS kv_bytes, intensity, t_compute_s,
           t_memory_s, t_weights_s, t_kv_s, t_inefficiency_s, t_host_s
    FROM steps WHERE run_id = $run AND step = $step
    """
    return reader.row(sql, {"run": run_id, "step": step})


def cloud(
    reader: Reader, run_id: str, span_s: float, first: int | None = None, last: int | None = None
) -> pd.DataFrame:
    """Up to about 140 steps of each phase from the newest span_s, evenly thinned by step number.

    first and last: those steps in place of the newest. Steps that beat the roof are always kept:
    hiding one would hide that a peak is wrong.
    """
    if first is None:
        which = "t_start_ns >= (SELECT max(t_start_ns) FROM steps WHERE run_id = $run) - $span"
        params: dict[str, int] = {"span": int(span_s * 1e9)}
    else:
        which, params = "step BETWEEN $first AND $last", {"first": first, "last": last or first}
    sql = f"""
    WITH recent AS (
        SELECT {_POINT} FROM steps WHERE run_id = $run AND {which} AND t_step_s > 0
    ), numbered AS (
        SELECT *, count(*) OVER (PARTITION BY phase) AS n FROM recent
    )
    SELECT * EXCLUDE (n) FROM numbered
    WHERE step % greatest(1, CAST(ceil(n / $points) AS BIGINT)) = 0 OR t_overhead_s < 0
    ORDER BY step
    """
    return reader.frame(sql, {"run": run_id, "points": CLOUD_POINTS, **params})


def trail(
    reader: Reader, run_id: str, last: int | None = None, first: int | None = None
) -> pd.DataFrame:
    """The newest 20 steps, oldest first; of those up to `last` and from `first` on."""
    sql = f"""
    SELECT {_POINT} FROM steps WHERE run_id = $run AND t_step_s > 0
    AND step > $last - $n AND step <= $last AND step >= $first ORDER BY step
    """
    ends = {"last": _last(reader, run_id, last), "first": first or 0}
    return reader.frame(sql, {"run": run_id, "n": TRAIL_STEPS, **ends})


def _last(reader: Reader, run_id: str, last: int | None) -> int:
    """The run's newest step where none is given; -1 before the first."""
    if last is not None:
        return last
    newest = reader.value("SELECT max(step) FROM steps WHERE run_id = $run", {"run": run_id})
    return -1 if newest is None else int(newest)


def decode_costs(reader: Reader, run_id: str, last: int | None = None) -> pd.DataFrame:
    """Work of one decoding sequence in the newest decode-only step that padded nothing; 0 or 1 row.

    matmul_flops and attention_flops, kv_bytes (read and written), each per sequence; weight_bytes
    of the step; decode_seqs; context_tokens, the mean context. Enough to redraw the step at any
    batch of that context. last: the newest up to that step.
    """
    newest = """
    SELECT max(step) FROM steps WHERE run_id = $run AND phase = 'decode' AND padded_slots = 0
    AND decode_seqs > 0 AND step <= $last
    """
    sql = """
    SELECT step, decode_seqs, t_step_s, weight_bytes,
           (linear_flops + head_flops) / decode_seqs AS matmul_flops,
           attention_flops / decode_seqs AS attention_flops,
           (kv_read_bytes + kv_write_bytes) / decode_seqs AS kv_bytes,
           (SELECT avg(context_tokens) FROM sequence_steps
            WHERE run_id = $run AND step = $step) AS context_tokens
    FROM steps WHERE run_id = $run AND step = $step
    """
    step = reader.value(newest, {"run": run_id, "last": _last(reader, run_id, last)})
    return reader.frame(sql, {"run": run_id, "step": step})


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
    sql = """
    SELECT decode_seqs + padded_slots AS batch, median(t_step_s) AS t_step_s,
           quantile_cont(t_step_s, 0.1) AS low_s, quantile_cont(t_step_s, 0.9) AS high_s,
           count(*) AS n
    FROM steps WHERE run_id = $run AND phase = 'decode'
    AND step > $last - $steps AND step <= $last AND step >= $first
    GROUP BY 1 HAVING count(*) >= 3 ORDER BY 1
    """
    ends = {"last": _last(reader, run_id, last), "first": first or 0}
    return reader.frame(sql, {"run": run_id, "steps": steps, **ends})
