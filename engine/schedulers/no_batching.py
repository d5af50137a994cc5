"""One sequence at a time: what batching is measured against."""

from __future__ import annotations

from engine.batch import ScheduledBatch
from engine.schedulers.base import Scheduler, next_chunk


class NoBatchingScheduler(Scheduler):
    """First come, first served; sequences left over from another scheduler go first."""

    name = "no-batching"

    def schedule(self, now_ns: int) -> ScheduledBatch:
        plan = ScheduledBatch()
        self._admit_while_room(1, plan)
        running = self.queue.running
        if running:
            oldest = min(running, key=lambda s: s.request_id)
            plan.chunks = [next_chunk(oldest)]
            if len(running) > 1:
                plan.limit_bound = "sequences"
        return plan
