"""One sequence at a time: what batching is measured against."""

from __future__ import annotations

from engine.batch import ScheduledBatch
from engine.schedulers.base import Scheduler, limit


class NoBatchingScheduler(Scheduler):
    """First come, first served; sequences left over from another scheduler go first."""

    name = "no-batching"

    def schedule(self, now_ns: int) -> ScheduledBatch:
        plan, queue = ScheduledBatch(), self.queue
        running = queue.running
        if not running and queue.waiting:
            running = [self._admit(plan)]  # alone it always fits
        if running:
            self._run(plan, running[0], running[0].uncomputed)
        if queue.waiting or queue.num_occupied > 1:
            limit(plan, "sequences")
        return plan
