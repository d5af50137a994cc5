"""The tiles' series against SQL over the same rows, and what is unknown in them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from telemetry.queries import live, live_seconds, live_tokens
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.synthetic import RUN_ID, not_reporting

SECONDS = 30
SQL = """
WITH had AS (
    SELECT ($end - t_start_ns - CAST(round(t_step_s * 1e9) AS BIGINT)) // 1000000000 AS second,
           max(n_running) AS running, max(n_waiting) AS waiting,
           max(kv_blocks_used) AS kv_blocks_used, sum(prefill_tokens) AS prompt_tokens,
           sum(prefix_hit_tokens) AS cached_tokens, sum(preemptions) AS preempted
    FROM steps WHERE run_id = $run AND t_start_ns >= $end - 30000000000 AND t_start_ns < $end
    GROUP BY 1
)
SELECT second, running, waiting, kv_blocks_used, prompt_tokens, cached_tokens, preempted
FROM range(30) AS seconds(second) LEFT JOIN had USING (second) ORDER BY second DESC
"""


def series(reader: Reader, end_ns: int) -> Any:
    paused = live_tokens.pauses(reader, RUN_ID)
    found = live_tokens.tokens(reader, RUN_ID, end_ns - SECONDS * 10**9, end_ns, paused)
    return live_seconds.per_second(reader, RUN_ID, end_ns, float(SECONDS), found)


def values(frame: Any, names: list[str]) -> list[list[float | None]]:
    rows = frame[names].astype(float).to_numpy().tolist()
    return [[None if math.isnan(v) else v for v in row] for row in rows]


@pytest.mark.parametrize("late_s", [0, 5, 100])
def test_they_are_what_sql_says(reader: Reader, late_s: int) -> None:
    """Also of a stretch that ends after the newest step: its last seconds are unknown."""
    newest = live.newest(reader, RUN_ID)
    assert newest is not None
    end_ns = int(newest["end_ns"]) + late_s * 10**9
    wanted = reader.frame(SQL, {"run": RUN_ID, "end": end_ns})
    found = series(reader, end_ns)
    names = [str(name) for name in wanted.columns]
    assert values(found, names) == values(wanted, names)
    assert len(found) == SECONDS


def test_what_a_source_does_not_report_is_unknown(store: Store) -> None:
    simulation = not_reporting("prefix_hit_tokens", "kv_blocks_used")
    simulation.write(store)
    found = series(store.reader(), simulation.now_ns)
    assert found["cached_tokens"].isna().all()
    assert found["kv_blocks_used"].isna().all()
    assert found["running"].max() == 2
