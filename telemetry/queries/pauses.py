"""The clock that stops while the engine is paused, for rows that are already here.

`telemetry.views` has it in SQL for whole runs; joining it to a few rows costs more than those rows.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.reader import Reader

Instants = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pauses:
    """Pauses of a run in order, ns: where each starts and ends, and the time paused before it."""

    starts: list[int]
    ends: list[int]
    before: list[int]

    def paused_before(self, t_ns: int) -> int:
        """Nanoseconds paused before an instant."""
        at = bisect_right(self.starts, t_ns) - 1
        if at < 0:
            return 0
        return self.before[at] + min(t_ns, self.ends[at]) - self.starts[at]

    def ran_ns(self, since_ns: int, to_ns: int) -> int:
        """From one instant to another, without the time paused."""
        paused_ns = self.paused_before(to_ns) - self.paused_before(since_ns) if self.starts else 0
        return to_ns - since_ns - paused_ns

    def ran(self, since_ns: int | None, to_ns: int | None) -> float | None:
        """As ran_ns, seconds; None where one of them has not happened."""
        if since_ns is None or to_ns is None:
            return None
        return self.ran_ns(since_ns, to_ns) / 1e9

    def clock(self, t_ns: Instants) -> Instants:
        """Each instant less the time paused before it."""
        if not self.starts:
            return t_ns
        return t_ns - np.asarray([self.paused_before(int(t)) for t in t_ns], np.int64)


def pauses_of(reader: Reader, run_id: str) -> Pauses:
    """As the view `pauses` has them."""
    sql = """
    SELECT start_ns, end_ns, paused_before_ns FROM pauses WHERE run_id = $run ORDER BY start_ns
    """
    rows = reader.rows(sql, {"run": run_id})
    return Pauses([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])
