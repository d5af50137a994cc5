"""What a run came to: the figures that `stepscope run` prints, and the list of runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from telemetry.queries.answers import read_answers
from telemetry.reader import Reader

_COUNTS = """
SELECT (SELECT count(*) FROM steps WHERE run_id = $run) AS steps,
       count(*) AS requests,
       count(*) FILTER (finish_reason IN ('stop', 'length')) AS completed,
       (SELECT count(*) FROM tokens WHERE run_id = $run) AS output_tokens
FROM requests WHERE run_id = $run"""

_PROMPTS = """
SELECT coalesce(any_value(preemptions), 0) AS preemptions,
       any_value(prefix_hit_fraction) AS prefix_hit_fraction,
       coalesce(any_value(computed_prompt_tokens), 0) AS computed_prompt_tokens,
       coalesce(any_value(recomputed_tokens), 0) AS recomputed_tokens
FROM prompt_work WHERE run_id = $run"""

_RATES = """
SELECT (SELECT makespan_s FROM makespan WHERE run_id = $run) AS makespan_s,
       (SELECT padded_slot_fraction FROM slot_steps WHERE run_id = $run) AS padded_slot_fraction,
       (SELECT mbu FROM utilisation WHERE run_id = $run AND phase = 'decode') AS mbu_decode,
       (SELECT mfu FROM utilisation WHERE run_id = $run AND phase = 'prefill') AS mfu_prefill,
       (SELECT goodput FROM goodput WHERE run_id = $run) AS goodput_per_s,
       (SELECT coalesce(sum("rows"), 0)::BIGINT FROM drops WHERE run_id = $run)
         AS dropped_records"""

_LATENCY = """
SELECT quantile_cont(ttft_s, [0.5, 0.99]) AS ttft_s, quantile_cont(tpot_s, [0.5, 0.99]) AS tpot_s
FROM request_latency WHERE run_id = $run"""

_RUNS = """
WITH made AS (
  SELECT run_id, count(*) AS steps, string_agg(DISTINCT scheduler, ', ' ORDER BY scheduler)
    AS schedulers FROM steps GROUP BY run_id),
asked AS (
  SELECT run_id, count(*) AS requests, sum(output_tokens)::BIGINT AS output_tokens
  FROM requests GROUP BY run_id)
SELECT r.run_id, r.started_wall, r.clock, r.source, r.model, r.device, r.backend, r.dtype,
       r.kv_dtype, made.schedulers, coalesce(made.steps, 0) AS steps,
       coalesce(asked.requests, 0) AS requests, coalesce(asked.output_tokens, 0) AS output_tokens
FROM runs r LEFT JOIN made USING (run_id) LEFT JOIN asked USING (run_id)
ORDER BY r.started_wall DESC, r.run_id DESC"""


def run_summary(reader: Reader, run_id: str) -> dict[str, Any]:
    """The JSON of `stepscope run` (design.md) but for `db`; None where unknown.

    Percentiles interpolate linearly; output_tokens_per_s is all output tokens over the makespan.
    Raises ValueError for a run that is not there.
    """
    run = {"run": run_id}
    known = [row[0] for row in reader.rows("SELECT run_id FROM runs ORDER BY run_id")]
    if run_id not in known:
        raise ValueError(f"no run {run_id}: there are {', '.join(known) or 'none'}")
    counts, rates = _row(reader, _COUNTS, run), _row(reader, _RATES, run)
    tokens, makespan_s = counts["output_tokens"], rates["makespan_s"]
    answers = read_answers(reader, run_id)
    return {
        **counts,
        **_row(reader, _PROMPTS, run),
        **rates,
        **_latencies(reader, run, answers.gaps_s),
        "output_tokens_per_s": tokens / makespan_s if makespan_s else None,
        "outputs_sha256": answers.sha256,
    }


def _row(reader: Reader, sql: str, run: dict[str, str]) -> dict[str, Any]:
    return reader.row(sql, run) or {}


def _latencies(
    reader: Reader, run: dict[str, str], gaps_s: npt.NDArray[np.float64]
) -> dict[str, dict[str, float | None]]:
    requests = _row(reader, _LATENCY, run)
    gaps = np.quantile(gaps_s, [0.5, 0.99]).tolist() if len(gaps_s) else None
    worst = float(gaps_s.max()) if len(gaps_s) else None
    return {
        "ttft_s": _percentiles(requests["ttft_s"]),
        "tpot_s": _percentiles(requests["tpot_s"]),
        "itl_s": {**_percentiles(gaps), "max": worst},
    }


def _percentiles(values: list[float] | None) -> dict[str, float | None]:
    p50, p99 = values or (None, None)
    return {"p50": p50, "p99": p99}


def outputs_sha256(reader: Reader, run_id: str) -> str | None:
    """Hash of what was answered, whatever the schedule; None before a request completes.

    Requests are numbered from 0 in request_id order, which is workload order. The hash is over,
    for each completed (stop or length) request by number: its number, its count N of output
    tokens, and its N token ids in order, all as little-endian signed 64-bit integers.
    """
    return read_answers(reader, run_id).sha256


def runs(reader: Reader) -> pd.DataFrame:
    """All runs, newest first: what ran on what, with how many steps, requests and tokens."""
    return reader.frame(_RUNS)
