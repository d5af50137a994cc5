"""What the KV cache page shows: who holds which block at a step, and the cache over a window.

A block is as its newest change by then left it. `position` is a block's place in the tables that
hold it; files from before it was recorded have NULL, and there blocks of a holder are put in order
of their numbers.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from telemetry.reader import Reader

MAX_BARS = 240
# How far back a sequence that holds blocks is looked for, steps: it may wait for its next chunk.
_LOOK_BACK = 4000
_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"


def blocks(reader: Reader, run_id: str, step: int) -> pd.DataFrame:
    """Blocks that are not free after a step: block, state, request_id, refs, position.

    Of a cached block request_id is NULL and refs 0. Ordered by block. Changes of one step on one
    block were made in the order of their rows.
    """
    sql = """
    WITH newest AS (
        SELECT block, max(rowid) AS row FROM blocks WHERE run_id = $run AND step <= $step
        GROUP BY block
    )
    SELECT b.block, b.state, b.request_id, b."references" AS refs, b.position
    FROM blocks b JOIN newest n ON n.row = b.rowid WHERE b.state <> 'free' ORDER BY b.block
    """
    held = reader.frame(sql, {"run": run_id, "step": step})
    if held["position"].isna().any():
        in_order = held.groupby("request_id", dropna=False).cumcount()
        held["position"] = held["position"].fillna(in_order)
    return held.astype({"position": "int64"})


def holders(reader: Reader, run_id: str, step: int) -> pd.DataFrame:
    """Sequences in the batch up to a step and not finished by it, in order of request_id.

    request_id, label, prompt_tokens, cached_tokens, preemptions (so far), context_tokens after the
    newest step that ran it, phase in it.
    """
    sql = f"""
    WITH at_step AS (
        SELECT {_END} AS end_ns FROM steps WHERE run_id = $run AND step = $step
    ), ran AS (
        SELECT request_id, arg_max(context_tokens, step) AS context_tokens,
               arg_max(phase, step) AS phase, max(step) AS newest
        FROM sequence_steps WHERE run_id = $run AND step <= $step AND step > $step - {_LOOK_BACK}
        GROUP BY request_id
    )
    SELECT ran.request_id, r.label, r.prompt_tokens, r.cached_tokens, r.preemptions,
           ran.context_tokens, ran.phase
    FROM ran JOIN requests r ON r.run_id = $run AND r.request_id = ran.request_id
    CROSS JOIN at_step
    WHERE ran.newest = $step OR r.finished_ns IS NULL OR r.finished_ns > at_step.end_ns
    ORDER BY ran.request_id
    """
    return reader.frame(sql, {"run": run_id, "step": step})


def state(reader: Reader, run_id: str, step: int) -> dict[str, Any] | None:
    """The step's own row, as far as memory goes; None where there is no such step."""
    sql = """
    SELECT step, scheduler, n_running, n_waiting, batch_slots, limit_bound, kv_blocks_total,
           kv_blocks_used, kv_blocks_cached, activation_bytes
    FROM steps WHERE run_id = $run AND step = $step
    """
    return reader.row(sql, {"run": run_id, "step": step})


def extent(reader: Reader, run_id: str) -> int:
    """How many block numbers the map by address has: all that were offered or ever in use."""
    sql = """
    SELECT greatest(
        (SELECT coalesce(max(block) + 1, 0) FROM blocks WHERE run_id = $run),
        (SELECT coalesce(max(kv_blocks_total), 0) FROM steps WHERE run_id = $run))
    """
    return int(reader.value(sql, {"run": run_id}))


def reported(reader: Reader, run_id: str) -> bool:
    """Whether the source tells who holds which block."""
    sql = "SELECT block FROM blocks WHERE run_id = $run LIMIT 1"
    return bool(reader.rows(sql, {"run": run_id}))


def dropped(reader: Reader, run_id: str) -> int:
    """Changes of blocks that telemetry dropped: then the map is not to be trusted."""
    sql = """SELECT "rows" FROM drops WHERE run_id = $run AND "table" = 'blocks'"""
    return int(reader.value(sql, {"run": run_id}) or 0)


def token_bytes(reader: Reader, run_id: str) -> float | None:
    """KV of one token, bytes, from the newest step that only decoded; None before there is one."""
    sql = """
    SELECT kv_write_bytes / decode_tokens AS bytes FROM steps
    WHERE run_id = $run AND phase = 'decode' AND padded_slots = 0 AND decode_tokens > 0
    ORDER BY step DESC LIMIT 1
    """
    value = reader.value(sql, {"run": run_id})
    return None if value is None else float(value)


def series(
    reader: Reader, run_id: str, first: int, last: int, end_ns: int, block_size: int | None
) -> pd.DataFrame:
    """The cache from step first to last, at most about 240 rows: each bin's fullest step.

    x_s (start, seconds before end_ns), end_s, step, total, used, cached: blocks in that step.
    evictions, preemptions, recomputed_tokens: sums of the bin. room_tokens: room in the last blocks
    of the sequences in that step, NULL where block size or sequences are not reported.
    """
    sql = f"""
    WITH bounds AS (
        SELECT min(t_start_ns) AS start_ns, count(*) AS n FROM steps
        WHERE run_id = $run AND step BETWEEN $first AND $last
    ), binned AS (
        SELECT s.*, CASE WHEN n <= {MAX_BARS} THEN step ELSE
                 CAST(floor((t_start_ns - start_ns) * {MAX_BARS}::DOUBLE
                      / greatest($end - start_ns, 1)) AS BIGINT) END AS bin
        FROM steps s CROSS JOIN bounds
        WHERE run_id = $run AND step BETWEEN $first AND $last
    ), bars AS (
        SELECT arg_max(step, coalesce(kv_blocks_used, 0)) AS step, min(t_start_ns) AS start_ns,
               max({_END}) AS end_ns, max(kv_blocks_used) AS used,
               arg_max(kv_blocks_cached, kv_blocks_used) AS cached,
               arg_max(kv_blocks_total, kv_blocks_used) AS total,
               sum(evictions)::BIGINT AS evictions, sum(preemptions)::BIGINT AS preemptions,
               sum(recomputed_tokens)::BIGINT AS recomputed_tokens
        FROM binned GROUP BY bin
    ), room AS (
        SELECT q.step, sum(($size - q.context_tokens % $size) % $size)::BIGINT AS room_tokens
        FROM sequence_steps q JOIN bars USING (step)
        WHERE q.run_id = $run AND q.step BETWEEN $first AND $last GROUP BY q.step
    )
    SELECT step, (start_ns - $end) / 1e9 AS x_s, (end_ns - $end) / 1e9 AS end_s, total, used,
           cached, evictions, preemptions, recomputed_tokens, room_tokens
    FROM bars LEFT JOIN room USING (step) ORDER BY start_ns
    """
    params = {"run": run_id, "first": first, "last": last, "end": end_ns, "size": block_size}
    return reader.frame(sql, params)
