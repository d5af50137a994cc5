"""What the Interference page shows: gaps with their baselines, who is to blame, lanes, the tail.

A window is steps first to last of one run. Gaps belong to the window in which they end. Times on
axes are seconds since start_ns, where the window begins.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from telemetry.interference import judged_window, prompts_window
from telemetry.reader import Reader

MAX_STEPS = 4_000
"""A longer window is cut to its newest steps."""
LABEL = "inject"
_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"
_WINDOW = "run_id = $run AND step BETWEEN $first AND $last"


def newest_inject(reader: Reader, run_id: str) -> dict[str, Any] | None:
    """The request that was injected last: request_id, prompt_tokens and its instants."""
    sql = """
    SELECT request_id, prompt_tokens, arrived_ns, admitted_ns, first_token_ns, finished_ns
    FROM requests
    WHERE run_id = $run AND label = $label ORDER BY request_id DESC LIMIT 1
    """
    return reader.row(sql, {"run": run_id, "label": LABEL})


def steps_between(
    reader: Reader, run_id: str, start_ns: int, end_ns: int
) -> tuple[int, int] | None:
    """First and last step that ran, at least in part, between two instants; None: none did."""
    sql = f"""
    SELECT min(step) AS first_step, max(step) AS last_step FROM steps
    WHERE run_id = $run AND t_start_ns < $end AND {_END} > $start HAVING count(*) > 0
    """
    row = reader.row(sql, {"run": run_id, "start": start_ns, "end": end_ns})
    return None if row is None else (int(row["first_step"]), int(row["last_step"]))


def reported(reader: Reader, run_id: str) -> dict[str, bool]:
    """Whether the source of a run reports `tokens` and `sequence_steps`: True once it has any."""
    sql = """
    SELECT EXISTS (SELECT 1 FROM tokens WHERE run_id = $run) AS tokens,
           EXISTS (SELECT 1 FROM sequence_steps WHERE run_id = $run) AS sequence_steps
    """
    return {name: bool(value) for name, value in (reader.row(sql, {"run": run_id}) or {}).items()}


def settings(reader: Reader, run_id: str, step: int) -> dict[str, Any] | None:
    """scheduler of a step, and the token budget that was set when it ran (NULL: unknown)."""
    sql = """
    SELECT s.scheduler, coalesce(
        (SELECT arg_max(detail->>'$.to', t_ns) FROM events e WHERE e.run_id = $run
         AND kind = 'chunk_tokens' AND e.t_ns <= s.t_start_ns),
        (SELECT arg_min(detail->>'$.from', t_ns) FROM events e WHERE e.run_id = $run
         AND kind = 'chunk_tokens' AND e.t_ns > s.t_start_ns),
        (SELECT config->>'$.chunk_tokens' FROM runs WHERE run_id = $run))::INTEGER AS chunk_tokens
    FROM steps s WHERE s.run_id = $run AND s.step = $step
    """
    return reader.row(sql, {"run": run_id, "step": step})


def _window(run_id: str, first: int, last: int) -> dict[str, Any]:
    return {"run": run_id, "first": first, "last": last}


def gaps(reader: Reader, run_id: str, first: int, last: int) -> pd.DataFrame:
    """Kinds of gaps, by time: gaps with the same steps and times are one row, `gaps` of them.

    after_step, step, t_ns, itl_s, gaps, batch, baseline_s, baseline_from, interference_s,
    inflation, prompt_flops, cause: see the view `interference`. streams: the requests that had
    them, where prompt tokens ran in them (else NULL).
    """
    sql = f"""{judged_window()}
    SELECT after_step, step, t_ns, itl_s, gaps, batch, baseline_s,
           baseline_from, interference_s, inflation, prompt_flops, cause,
           CASE WHEN prompt_flops IS NOT NULL THEN streams END AS streams
    FROM judged ORDER BY t_ns, itl_s
    """
    window = _window(run_id, first, last)
    return reader.frame(sql, {**window, **emitting(reader, window)})


def emitting(reader: Reader, window: dict[str, Any]) -> dict[str, Any]:
    """oldest and newest: the first and the last request that emitted a token in a window (NULL:
    none did), which `judged_window` asks for."""
    sql = f"SELECT min(request_id) AS oldest, max(request_id) AS newest FROM tokens WHERE {_WINDOW}"
    return reader.row(sql, window) or {}


def prompts(reader: Reader, run_id: str, first: int, last: int, start_ns: int) -> pd.DataFrame:
    """Steps with prompt tokens, one row per request with some: step, request_id, phase (prefill or
    recompute), tokens, flops, start_s, end_s."""
    sql = f"""{prompts_window()}
    SELECT step, p.request_id, p.phase, p.tokens, p.flops,
           (t_start_ns - $start) / 1e9 AS start_s, ({_END} - $start) / 1e9 AS end_s
    FROM prompts p JOIN steps USING (run_id, step) ORDER BY step, p.request_id
    """
    return reader.frame(sql, {**_window(run_id, first, last), "start": start_ns})


def requests(reader: Reader, run_id: str, request_ids: list[int]) -> pd.DataFrame:
    """request_id, prompt_tokens, label of some requests."""
    sql = """
    SELECT request_id, prompt_tokens, label FROM requests
    WHERE run_id = $run AND request_id IN (SELECT unnest($ids::BIGINT[]))
    """
    return reader.frame(sql, {"run": run_id, "ids": request_ids})


def ttft(reader: Reader, run_id: str, request_id: int) -> float | None:
    """TTFT of one request, s; None before its first token."""
    sql = "SELECT ttft_s FROM request_latency WHERE run_id = $run AND request_id = $request"
    value: float | None = reader.value(sql, {"run": run_id, "request": request_id})
    return value


def window_steps(reader: Reader, run_id: str, first: int, last: int) -> pd.DataFrame:
    """Steps in order: step, start_ns, end_ns, t_step_s, has_prompt (whether it had such tokens)."""
    sql = f"""
    SELECT step, t_start_ns AS start_ns, {_END} AS end_ns, t_step_s,
           prefill_tokens + recomputed_tokens > 0 AS has_prompt
    FROM steps WHERE {_WINDOW} ORDER BY step
    """
    return reader.frame(sql, _window(run_id, first, last))


def emissions(reader: Reader, run_id: str, first: int, last: int) -> pd.DataFrame:
    """What streams emitted, in no order: step, slot, request_id, tokens.

    What was injected is no stream.
    """
    sql = f"""
    SELECT step, slot, request_id, emitted_tokens AS tokens FROM sequence_steps
    WHERE {_WINDOW} AND emitted_tokens > 0 AND request_id NOT IN (
        SELECT request_id FROM requests WHERE run_id = $run AND label = $label)
    """
    return reader.frame(sql, {**_window(run_id, first, last), "label": LABEL})


def tail(reader: Reader, run_id: str, end_ns: int, span_s: float) -> pd.DataFrame:
    """Throughput beside the tail, per second of the newest span_s: x_s (its middle, before end_ns),
    tokens, median_s and worst_s of the gaps that ended in it (NULL without one)."""
    sql = """
    WITH seconds AS (SELECT range AS second FROM range($span)),
    made AS (
        SELECT ($end - t_ns) // 1000000000 AS second, count(*) AS tokens FROM tokens
        WHERE run_id = $run AND t_ns > $since AND t_ns <= $end GROUP BY 1),
    ended AS (
        SELECT ($end - t_ns) // 1000000000 AS second, median(itl_s) AS median_s,
               max(itl_s) AS worst_s
        FROM itl WHERE run_id = $run AND t_ns > $since AND t_ns <= $end GROUP BY 1)
    SELECT -(second + 0.5)::DOUBLE AS x_s, coalesce(tokens, 0) AS tokens, median_s, worst_s
    FROM seconds LEFT JOIN made USING (second) LEFT JOIN ended USING (second)
    ORDER BY second DESC
    """
    since = end_ns - int(span_s * 1e9)
    params = {"run": run_id, "end": end_ns, "since": since, "span": int(span_s)}
    return reader.frame(sql, params)
