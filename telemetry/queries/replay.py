"""What a replay needs of a recorded run: its steps, its requests, and the load that sent them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from telemetry.reader import Reader


def run(reader: Reader, run_id: str) -> dict[str, Any] | None:
    """The run's own row; None when there is no such run."""
    return reader.row("SELECT * FROM runs WHERE run_id = $run", {"run": run_id})


def run_ids(reader: Reader) -> list[str]:
    """All runs of the file, newest first."""
    rows = reader.rows("SELECT run_id FROM runs ORDER BY started_wall DESC, run_id DESC")
    return [str(row[0]) for row in rows]


def steps(reader: Reader, run_id: str) -> pd.DataFrame:
    """One row per step, in order: what it ran and how long it took.

    phase, matmul_flops (linear layers and head), weight_bytes, attention_flops, kv_bytes (read and
    written), sequences and rows (padding included), forward_s, host_s, held_up (whether the system
    took the engine's core away).
    """
    sql = """
    SELECT CAST(phase AS VARCHAR) AS phase, linear_flops + head_flops AS matmul_flops,
           weight_bytes, attention_flops, kv_read_bytes + kv_write_bytes AS kv_bytes,
           prefill_seqs + decode_seqs + padded_slots + coalesce(recompute_seqs, 0) AS sequences,
           prefill_tokens + decode_tokens + recomputed_tokens + padded_prefill_tokens
             + padded_slots AS "rows",
           forward_s, t_host_s AS host_s, coalesce(involuntary_switches, 0) > 0 AS held_up
    FROM steps WHERE run_id = $run ORDER BY step
    """
    return reader.frame(sql, {"run": run_id})


def requests(reader: Reader, run_id: str) -> pd.DataFrame:
    """Requests that emitted a token, in order of request_id; times without the time paused.

    request_id, arrived_ns, prompt_tokens, output_tokens (emitted so far), label.
    """
    sql = """
    WITH made AS (
        SELECT request_id, count(*) AS output_tokens FROM tokens WHERE run_id = $run GROUP BY 1
    )
    SELECT r.request_id, r.prompt_tokens, made.output_tokens, r.label,
           r.arrived_ns - coalesce(
             p.paused_before_ns + least(r.arrived_ns, p.end_ns) - p.start_ns, 0) AS arrived_ns
    FROM requests r JOIN made USING (request_id)
    ASOF LEFT JOIN pauses p ON p.run_id = r.run_id AND p.start_ns <= r.arrived_ns
    WHERE r.run_id = $run ORDER BY r.request_id
    """
    return reader.frame(sql, {"run": run_id})


def asked(reader: Reader, run_id: str) -> int:
    """All requests of the run, those too that never emitted a token."""
    sql = "SELECT count(*) FROM requests WHERE run_id = $run"
    return int(reader.value(sql, {"run": run_id}))


def changes(reader: Reader, run_id: str) -> pd.DataFrame:
    """Events that changed load or settings, in order: t_ns (without the time paused), kind, detail.

    detail is JSON: of `load` the load's settings, of the others {"from", "to"}.
    """
    sql = """
    SELECT e.kind, CAST(e.detail AS VARCHAR) AS detail,
           e.t_ns - coalesce(
             p.paused_before_ns + least(e.t_ns, p.end_ns) - p.start_ns, 0) AS t_ns
    FROM events e
    ASOF LEFT JOIN pauses p ON p.run_id = e.run_id AND p.start_ns <= e.t_ns
    WHERE e.run_id = $run AND e.kind IN
      ('load', 'scheduler_switch', 'max_batch', 'chunk_tokens', 'prefix_cache', 'kv_blocks')
    ORDER BY e.t_ns, e.rowid
    """
    return reader.frame(sql, {"run": run_id})
