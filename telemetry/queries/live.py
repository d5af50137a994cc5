"""What the Live page shows: the newest window of one run, binned so that no picture grows with it.

Times are seconds before the end of the run's newest step (negative), so that an axis never moves.
Every function takes a `Reader` and a run, and returns a DataFrame (or one row as a dict).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from telemetry.reader import Reader

ANATOMY_S = 0.25
_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"
_ANATOMY = (
    "phase, step, t_step_s, t_compute_s, t_memory_s, t_weights_s, t_kv_s, t_inefficiency_s, "
    "t_host_s, forward_s, bound, prefill_tokens, recomputed_tokens, decode_seqs, padded_slots, "
    "limit_bound"
)


def run(reader: Reader, run_id: str) -> dict[str, Any] | None:
    """The run's own row, None when there is no such run."""
    return reader.row("SELECT * FROM runs WHERE run_id = $run", {"run": run_id})


def newest(reader: Reader, run_id: str, step: int | None = None) -> dict[str, Any] | None:
    """The newest step, what pages need of it, and its `end_ns`; None before the first step.

    step: that one in its place; None where the run does not have it.
    """
    if step is None:
        step = reader.value("SELECT max(step) FROM steps WHERE run_id = $run", {"run": run_id})
    sql = f"""
    SELECT step, t_start_ns, t_step_s, t_compute_s, t_memory_s, scheduler, phase,
           n_running, n_waiting, decode_seqs, padded_slots,
           prefill_tokens, decode_tokens, batch_slots, limit_bound, kv_blocks_used,
           kv_blocks_total, flops, intensity, prefix_hit_tokens, recomputed_tokens, preemptions,
           t_inefficiency_s, t_host_s,
           {_END} AS end_ns
    FROM steps WHERE run_id = $run AND step = $step
    """
    return None if step is None else reader.row(sql, {"run": run_id, "step": step})


def since_ns(end_ns: int, span_s: float) -> int:
    """Where a window begins that ends at end_ns. Rounded: a float of seconds is a hair off."""
    return end_ns - round(span_s * 1e9)


def stretch(reader: Reader, run_id: str, first: int, last: int) -> dict[str, Any] | None:
    """What steps first to last did in all; None without a step.

    steps, schedulers (in order, joined by "and"), most running, waiting and kv_blocks_used of a
    step, batch_slots, kv_blocks_total, limit_bound (that bound most steps, "none" where none did),
    sums of prompt_tokens, decode_tokens, cached_tokens, preempted.
    """
    sql = """
    WITH chosen AS (SELECT * FROM steps WHERE run_id = $run AND step BETWEEN $first AND $last),
    named AS (SELECT scheduler, min(step) AS since FROM chosen GROUP BY scheduler)
    SELECT count(*) AS steps,
           (SELECT string_agg(scheduler, ' and ' ORDER BY since) FROM named) AS schedulers,
           max(n_running) AS running, max(n_waiting) AS waiting,
           max(kv_blocks_used) AS kv_blocks_used, max(batch_slots) AS batch_slots,
           max(kv_blocks_total) AS kv_blocks_total,
           coalesce(mode(limit_bound) FILTER (limit_bound <> 'none'), 'none') AS limit_bound,
           sum(prefill_tokens)::BIGINT AS prompt_tokens,
           sum(decode_tokens)::BIGINT AS decode_tokens,
           sum(prefix_hit_tokens)::BIGINT AS cached_tokens, sum(preemptions)::BIGINT AS preempted
    FROM chosen HAVING count(*) > 0
    """
    return reader.row(sql, {"run": run_id, "first": first, "last": last})


def paused_s(reader: Reader, run_id: str, start_ns: int, end_ns: int) -> float:
    """Seconds between two instants in which the engine was paused: no rate counts them."""
    sql = """
    SELECT coalesce(sum(least(end_ns, $end) - greatest(start_ns, $start)), 0) AS paused_ns
    FROM pauses WHERE run_id = $run AND start_ns < $end AND end_ns > $start
    """
    return float(reader.value(sql, {"run": run_id, "start": start_ns, "end": end_ns})) / 1e9


def reports_tokens(reader: Reader, run_id: str) -> bool:
    """Whether the source says when each token came; without, a rate is unknown and not zero."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM tokens WHERE run_id = $run LIMIT 1)"
    return bool(reader.value(sql, {"run": run_id}))


def first(frame: pd.DataFrame) -> dict[str, Any] | None:
    """First row as a dict with None for NULL; None when the frame is empty."""
    if frame.empty:
        return None
    row = frame.iloc[0].to_dict()
    return {str(k): None if pd.isna(v) else v for k, v in row.items()}


def anatomy(reader: Reader, run_id: str, newest: int) -> pd.DataFrame:
    """Per phase the median step (by t_step_s) of the 250 ms that end with the phase's newest step.

    A real step and not a median per column, so that its parts sum to the whole. `age_s` tells how
    long before the newest step of all it ran, `n` among how many it is the median. newest: the
    number of that step; the 4,000 steps up to it are looked at.
    """
    recent = reader.columns(
        f"SELECT phase, step, t_step_s, {_END} AS end_ns FROM steps "
        "WHERE run_id = $run AND step > $newest - 4000 AND step <= $newest",
        {"run": run_id, "newest": newest},
    )
    kinds, step, t_step_s, end_ns = (
        np.asarray(recent[name]) for name in ("phase", "step", "t_step_s", "end_ns")
    )
    middle: dict[int, tuple[int, float]] = {}
    for phase in set(kinds.tolist()):
        ends = np.where(kinds == phase, end_ns, 0)
        near = np.flatnonzero(ends > ends.max() - int(ANATOMY_S * 1e9))
        order = near[np.lexsort((step[near], t_step_s[near]))]
        at = order[(len(order) + 1) // 2 - 1]
        middle[int(step[at])] = (len(order), float(end_ns.max() - ends.max()) / 1e9)
    # Literals, which DuckDB prunes by; a list that it is given costs a join.
    steps = " OR ".join(f"step = {s}" for s in middle) or "false"
    sql = f"SELECT {_ANATOMY} FROM steps WHERE run_id = $run AND ({steps}) ORDER BY phase"
    names = [name.strip() for name in _ANATOMY.split(",")]
    frame = pd.DataFrame(reader.rows(sql, {"run": run_id}), columns=names)
    found = [middle[int(s)] for s in frame["step"]]
    return frame.assign(n=[n for n, _ in found], age_s=[age_s for _, age_s in found])


def anatomy_of(
    reader: Reader, run_id: str, first: int, last: int, picked: int | None = None
) -> pd.DataFrame:
    """As anatomy, of steps first to last: per phase their median step, with `n` and `age_s` 0.

    picked: that step stands for its phase, with `n` 1.
    """
    sql = f"""
    WITH chosen AS (
        SELECT {_ANATOMY} FROM steps WHERE run_id = $run AND step BETWEEN $first AND $last
    ), kept AS (
        SELECT * FROM chosen WHERE step = $picked OR $picked IS NULL
        OR phase <> coalesce((SELECT phase FROM chosen WHERE step = $picked), '')
    ), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY phase ORDER BY t_step_s, step) AS place,
               count(*) OVER (PARTITION BY phase) AS n FROM kept
    )
    SELECT {_ANATOMY}, n, 0.0 AS age_s FROM ranked WHERE place = (n + 1) // 2 ORDER BY phase
    """
    params = {"run": run_id, "first": first, "last": last, "picked": picked}
    return reader.frame(sql, params)


def marks(
    reader: Reader, run_id: str, end_ns: int, span_s: float, until_ns: int | None = None
) -> pd.DataFrame:
    """Events to mark on a time axis: x_s, step, kind, detail; of a crowded kind the newest 12.

    What came after the newest step is at 0 until another step runs; until_ns: it is left
    out. The pauses between single steps are left out: they are one pause. Of a race only the start
    of each leg is a mark. Preemptions that follow each other within a thirtieth of the window are
    one mark at the first of them, its detail {"count": …}.
    """
    since = since_ns(end_ns, span_s)
    any_ = "SELECT count(*) FROM events WHERE run_id = $run AND t_ns >= $since"
    if not reader.value(any_, {"run": run_id, "since": since}):
        return pd.DataFrame({"x_s": [], "step": [], "kind": [], "detail": []})
    sql = """
    WITH window_events AS (
        SELECT t_ns, step, kind, detail,
               kind = 'preempt' AND t_ns - lag(t_ns) OVER by_kind < $apart AS follows
        FROM events WHERE run_id = $run AND t_ns >= $since
        AND t_ns <= coalesce($until, t_ns)
        AND NOT coalesce(TRY_CAST(detail->>'$.single_step' AS BOOLEAN), false)
        AND NOT (kind = 'race' AND detail->>'$.part' IS DISTINCT FROM 'start')
        WINDOW by_kind AS (PARTITION BY kind ORDER BY t_ns)
    ), numbered AS (
        SELECT *, count(*) FILTER (NOT coalesce(follows, false)) OVER (
            PARTITION BY kind ORDER BY t_ns, step ROWS UNBOUNDED PRECEDING) AS island
        FROM window_events
    ), merged AS (
        SELECT min(t_ns) AS t_ns, min(step) AS step, kind,
               CASE WHEN kind = 'preempt' THEN json_object('count', count(*))
                    ELSE any_value(detail) END AS detail
        FROM numbered GROUP BY kind, island
    ), placed AS (
        SELECT *, row_number() OVER (PARTITION BY kind ORDER BY t_ns DESC) AS place FROM merged
    )
    SELECT least((t_ns - $end) / 1e9, 0.0) AS x_s, step, kind, detail FROM placed
    WHERE place <= 12 ORDER BY t_ns
    """
    window = {"since": since, "apart": round(span_s * 1e9) // 30, "until": until_ns}
    return reader.frame(sql, {"run": run_id, "end": end_ns, **window})


def busy(reader: Reader, run_id: str) -> bool:
    """Whether a request waits or runs: then a silence is a long step, not idleness."""
    sql = "SELECT count(*) FROM requests WHERE run_id = $run AND finish_reason IS NULL"
    return bool(reader.value(sql, {"run": run_id}))


def shares(reader: Reader, run_id: str, step: int) -> pd.DataFrame:
    """Who got what in one step, by slot: request_id, slot, phase, tokens (padding included)."""
    sql = """
    SELECT request_id, slot, phase, tokens FROM sequence_steps
    WHERE run_id = $run AND step = $step ORDER BY slot, request_id
    """
    return reader.frame(sql, {"run": run_id, "step": step})


def past_runs(reader: Reader, limit: int = 50) -> pd.DataFrame:
    """Runs of the database, newest first: run_id, started_wall, model, dtype, device, …"""
    sql = """
    SELECT run_id, started_wall, model, dtype, device, clock, source FROM runs
    ORDER BY started_wall DESC LIMIT $limit
    """
    return reader.frame(sql, {"limit": limit})


def committed_steps(reader: Reader, run_id: str) -> int:
    """Steps of a run that are in the database."""
    sql = "SELECT count(*) FROM steps WHERE run_id = $run"
    return int(reader.value(sql, {"run": run_id}))
