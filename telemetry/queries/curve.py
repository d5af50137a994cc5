"""What was measured of the requests that a curve of token budgets replays."""

from __future__ import annotations

from typing import Any

from telemetry.queries.interference import LABEL, settings
from telemetry.reader import Reader

_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"


def instants(reader: Reader, run_id: str, first: int, last: int) -> tuple[int, int] | None:
    """Start of step first and end of step last, without the time paused, as requests arrive."""
    sql = f"""
    WITH ends AS (
        SELECT min(t_start_ns) AS start_ns, max({_END}) AS end_ns FROM steps
        WHERE run_id = $run AND step BETWEEN $first AND $last HAVING count(*) > 0),
    paused AS (
        SELECT coalesce(sum(least(p.end_ns, e.start_ns) - p.start_ns)
                 FILTER (p.start_ns < e.start_ns), 0)::BIGINT AS before_ns,
               coalesce(sum(least(p.end_ns, e.end_ns) - p.start_ns)
                 FILTER (p.start_ns < e.end_ns), 0)::BIGINT AS until_ns
        FROM ends e CROSS JOIN pauses p WHERE p.run_id = $run)
    SELECT start_ns - before_ns AS start_ns, end_ns - until_ns AS end_ns FROM ends, paused
    """
    row = reader.row(sql, {"run": run_id, "first": first, "last": last})
    return None if row is None else (int(row["start_ns"]), int(row["end_ns"]))


def injected(reader: Reader, run_id: str) -> int | None:
    """The request that was injected last; None: none was."""
    sql = "SELECT max(request_id) FROM requests WHERE run_id = $run AND label = $label"
    found: int | None = reader.value(sql, {"run": run_id, "label": LABEL})
    return found


def measured(reader: Reader, run_id: str, first: int, last: int) -> dict[str, Any]:
    """Of requests first to last: worst_s (gap), ttft_s (median), ttft_worst_s; NULL: unknown.

    scheduler and chunk_tokens: those of all their steps; None where they changed meanwhile.
    """
    window = {"run": run_id, "first": first, "last": last}
    sql = """
    SELECT (SELECT max(itl_s) FROM itl WHERE run_id = $run AND request_id BETWEEN $first AND $last)
             AS worst_s, median(ttft_s) AS ttft_s, max(ttft_s) AS ttft_worst_s
    FROM request_latency WHERE run_id = $run AND request_id BETWEEN $first AND $last
    """
    found = reader.row(sql, window) or {}
    return {**found, **_settings(reader, window)}


def _settings(reader: Reader, window: dict[str, Any]) -> dict[str, Any]:
    """What held while these requests ran; None for what changed."""
    sql = """
    WITH ends AS (SELECT min(step) AS low, max(step) AS high FROM tokens
                  WHERE run_id = $run AND request_id BETWEEN $first AND $last)
    SELECT low, high, count(DISTINCT scheduler) AS schedulers
    FROM steps CROSS JOIN ends WHERE run_id = $run AND step BETWEEN low AND high GROUP BY ALL
    """
    row = reader.row(sql, window)
    if row is None:
        return {"scheduler": None, "chunk_tokens": None}
    ends = [settings(reader, window["run"], int(row[end])) or {} for end in ("low", "high")]
    same = row["schedulers"] == 1
    scheduler = ends[1].get("scheduler") if same else None
    budget = ends[1].get("chunk_tokens")
    held = same and ends[0].get("chunk_tokens") == budget
    return {"scheduler": scheduler, "chunk_tokens": budget if held else None}
