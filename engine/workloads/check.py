"""Is this a load that can run? Asked before an engine is started for it."""

from __future__ import annotations

from engine.workloads.generator import check_settings
from engine.workloads.registry import load_workload


def check_load(
    workload: str, concurrency: int | None, rate: float | None, requests: int | None
) -> int:
    """How many requests a bounded run of it has. Raises UserError for what cannot be."""
    check_settings(concurrency, rate, requests)
    found = load_workload(workload, seed=0, requests=requests)
    return found.default_requests if found.requests is None else found.requests
