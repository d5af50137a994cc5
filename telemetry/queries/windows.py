"""Which steps a page shows: the newest ones of a run, or a stretch that someone chose."""

from __future__ import annotations

from typing import Any

from telemetry.reader import Reader

_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"


def newest_window(reader: Reader, run_id: str, span_s: float) -> dict[str, Any] | None:
    """first_step, last_step, start_ns and end_ns of the steps that start in the newest span_s.

    The newest step is always among them; None before the first step.
    """
    newest = f"""
    SELECT step AS last_step, {_END} AS end_ns FROM steps WHERE run_id = $run
    AND step = (SELECT max(step) FROM steps WHERE run_id = $run)
    """
    since = """
    SELECT min(step) AS first_step, min(t_start_ns) AS start_ns FROM steps
    WHERE run_id = $run AND (t_start_ns >= $since OR step = $last)
    """
    end = reader.row(newest, {"run": run_id})
    if end is None:
        return None
    ends = {"since": int(end["end_ns"]) - int(span_s * 1e9), "last": end["last_step"]}
    return {**end, **(reader.row(since, {"run": run_id, **ends}) or {})}


def chosen_window(reader: Reader, run_id: str, first: int, last: int) -> dict[str, Any] | None:
    """As newest_window, of steps first to last, cut to those that the run has.

    A choice wholly outside the run becomes its nearest step.
    """
    sql = f"""
    WITH ends AS (SELECT min(step) AS low, max(step) AS high FROM steps WHERE run_id = $run),
    cut AS (SELECT least(greatest($first, low), high) AS first_step,
                   least(greatest($last, low), high) AS last_step FROM ends)
    SELECT min(step) AS first_step, max(step) AS last_step,
           min(t_start_ns) AS start_ns, max({_END}) AS end_ns
    FROM steps CROSS JOIN cut
    WHERE run_id = $run AND step BETWEEN cut.first_step AND cut.last_step
    HAVING count(*) > 0
    """
    return reader.row(sql, {"run": run_id, "first": first, "last": last})


def steps_between(
    reader: Reader, run_id: str, start_ns: int, end_ns: int
) -> tuple[int, int] | None:
    """The first and last step that ran between two instants, also in part; None: none did."""
    sql = f"""
    SELECT min(step) AS first_step, max(step) AS last_step FROM steps
    WHERE run_id = $run AND t_start_ns < $end AND {_END} > $start HAVING count(*) > 0
    """
    row = reader.row(sql, {"run": run_id, "start": start_ns, "end": end_ns})
    return (int(row["first_step"]), int(row["last_step"])) if row else None
