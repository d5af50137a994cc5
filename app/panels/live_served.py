"""What became of the requests of a stretch, against the targets that the run was started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.figures.data import known
from app.units import count, duration, three
from telemetry.queries.live_requests import Requests


@dataclass(frozen=True, slots=True)
class Served:
    """completed: requests that ended by themselves in span_s seconds without pauses; met: those of
    them within both targets, None where the run lacks one. worst_ttft_s: of the first tokens of the
    stretch, None without one.
    """

    completed: int
    met: int | None
    span_s: float
    worst_ttft_s: float | None
    ttft_slo_s: float | None
    tpot_slo_s: float | None

    @property
    def goodput(self) -> float | None:
        """Requests per second that met both targets (design.md, Vocabulary)."""
        return self.met / self.span_s if self.met is not None and self.span_s > 0 else None

    @property
    def late(self) -> bool:
        """Whether a first token came later than its target."""
        return (self.worst_ttft_s or 0.0) > (self.ttft_slo_s or float("inf"))

    def rate(self) -> str:
        """For a tile: `goodput 0.37 req/s`."""
        if self.met is None:
            return "goodput: no targets set"
        return f"goodput {three(self.goodput)} req/s" if self.completed else "none finished"

    def first_token(self) -> str:
        """For a tile: `TTFT to 240 ms, target 1.00 s`."""
        target = f", target {duration(self.ttft_slo_s)}" if self.ttft_slo_s else ""
        if self.worst_ttft_s is None:
            return f"TTFT{target}" if target else ""
        return f"TTFT to {duration(self.worst_ttft_s)}{target}"

    def sentence(self) -> str:
        """Of how many that finished, how many met what."""
        if self.ttft_slo_s is None or self.tpot_slo_s is None:
            return f"{count(self.completed)} finished; the run has no targets"
        targets = f"TTFT {duration(self.ttft_slo_s)} and TPOT {duration(self.tpot_slo_s)}"
        return (
            f"{count(self.met)} of {count(self.completed)} that finished in "
            f"{duration(self.span_s)} met the run's targets, {targets}"
        )


def served(
    rows: Requests, run: Mapping[str, Any], start_ns: int, span_s: float, first_since_ns: int
) -> Served:
    """The stretch begins at start_ns and is span_s long; the worst TTFT is over first tokens after
    first_since_ns."""
    ttft_slo_s, tpot_slo_s = known(run["ttft_slo_s"]), known(run["tpot_slo_s"])
    completed = rows.done & (rows.finished_ns > start_ns)
    met = None
    if ttft_slo_s is not None and tpot_slo_s is not None:
        in_time = (rows.ttft_s <= ttft_slo_s) & (np.nan_to_num(rows.tpot_s) <= tpot_slo_s)
        met = int(np.count_nonzero(completed & in_time))
    firsts = rows.ttft_s[rows.first_ns > first_since_ns]
    worst = float(firsts.max()) if len(firsts) else None
    return Served(int(completed.sum()), met, span_s, worst, ttft_slo_s, tpot_slo_s)
