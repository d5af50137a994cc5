"""What the Kernels page shows: steps whose kernels were timed, and what each kernel took."""

from __future__ import annotations

from typing import Any

import pandas as pd

from telemetry.reader import Reader


def has_samples(reader: Reader, run_id: str) -> bool:
    """Whether the source of this run timed any kernel."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM kernel_samples WHERE run_id = $run LIMIT 1)"
    return bool(reader.value(sql, {"run": run_id}))


_TIMED = """
    sampled AS (
        SELECT step, sum(time_s) AS kernels_s FROM kernel_samples
        WHERE run_id = $run AND step BETWEEN $first AND $last GROUP BY step
    ), timed AS (
        SELECT * FROM steps JOIN sampled USING (step)
        WHERE run_id = $run AND step BETWEEN $first AND $last
    )
"""


def timed_steps(reader: Reader, run_id: str, first: int, last: int) -> pd.DataFrame:
    """Medians, per phase, of those of steps first to last whose kernels were timed.

    gaps_s: what of the forward pass no kernel took; t_host_s; rows of each kind; n: how many steps;
    step: the newest of them.
    """
    sql = f"""
    WITH {_TIMED}
    SELECT phase, count(*) AS n, max(step) AS step, median(forward_s - kernels_s) AS gaps_s,
           median(t_host_s) AS t_host_s,
           median(prefill_tokens + recomputed_tokens) AS prompt_tokens,
           median(decode_seqs + padded_slots) AS decodes
    FROM timed GROUP BY phase ORDER BY phase
    """
    return reader.frame(sql, {"run": run_id, "first": first, "last": last})


def kernels(reader: Reader, run_id: str, first: int, last: int) -> pd.DataFrame:
    """Medians of each kernel over the same steps: phase, kernel, calls, time_s, flops and bytes.

    In a step a kernel may not have run (the LM head where nothing was sampled): there it took 0.
    A median a kernel, since a thread that loses its core for a moment is in one kernel of one step.
    flops and bytes are NULL where they are not counted.
    """
    sql = f"""
    WITH {_TIMED}, named AS (
        SELECT DISTINCT phase, kernel FROM kernel_samples JOIN timed USING (run_id, step)
    ), every AS (
        SELECT phase, kernel, step FROM named JOIN timed USING (phase)
    )
    SELECT phase, kernel, CAST(median(coalesce(calls, 0)) AS BIGINT) AS calls,
           median(coalesce(time_s, 0)) AS time_s,
           median(CASE WHEN step_ran IS NULL THEN 0 ELSE flops END) AS flops,
           median(CASE WHEN step_ran IS NULL THEN 0 ELSE bytes END) AS bytes
    FROM every LEFT JOIN (
        SELECT step, step AS step_ran, kernel, calls, time_s, flops, bytes FROM kernel_samples
        WHERE run_id = $run AND step BETWEEN $first AND $last
    ) USING (step, kernel)
    GROUP BY phase, kernel ORDER BY phase, kernel
    """
    return reader.frame(sql, {"run": run_id, "first": first, "last": last})


def device(reader: Reader, run_id: str, start_ns: int, end_ns: int) -> dict[str, Any]:
    """How busy the device said it was between two instants (monotonic ns), on average.

    utilisation: share of time with a kernel; cpu_percent: of the engine process, 100 a core. None:
    not reported.
    """
    sql = """
    SELECT avg(utilisation) AS utilisation, avg(cpu_percent) AS cpu_percent FROM device_samples
    WHERE run_id = $run AND t_ns BETWEEN $start AND $end
    """
    return reader.row(sql, {"run": run_id, "start": start_ns, "end": end_ns}) or {}
