"""What the Interference page shows: gaps with their baselines, who is to blame, lanes, the tail.

A window is steps first to last of one run. Gaps belong to the window in which they end. Times on
axes are seconds since start_ns, where the window begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from telemetry.gap_window import Window, read_window
from telemetry.gap_window import gaps as judge
from telemetry.gap_window import prompts as asked
from telemetry.reader import Reader

MAX_STEPS = 4_000
"""A longer window is cut to its newest steps."""
LABEL = "inject"
_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"


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


def gaps(reader: Reader, run_id: str, first: int, last: int) -> pd.DataFrame:
    """Kinds of gaps, by time: gaps with the same steps and times are one row, `gaps` of them.

    after_step, step, t_ns, itl_s, gaps, batch, baseline_s, baseline_from, interference_s,
    inflation, prompt_flops, cause: see the view `interference`. streams: the requests that had
    them.
    """
    window = read_window(reader, run_id, first, last)
    return judge(window, asked(window))


def prompts(window: Window, rows: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """Of `gap_window.prompts` those of the window itself, with start_s and end_s of their steps."""
    shown = rows[rows["step"] >= window.first].reset_index(drop=True)
    place = np.searchsorted(window.steps["step"].to_numpy(), shown["step"].to_numpy())
    for name in ("start", "end"):
        at_ns = window.steps[f"{name}_ns"].to_numpy()[place]
        shown[f"{name}_s"] = (at_ns - start_ns) / 1e9
    return shown


def injected(reader: Reader, run_id: str) -> list[int]:
    """The requests that were injected: no streams."""
    sql = "SELECT request_id FROM requests WHERE run_id = $run AND label = $label"
    return [int(row[0]) for row in reader.rows(sql, {"run": run_id, "label": LABEL})]


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
