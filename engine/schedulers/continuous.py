"""Iteration-level scheduling (Yu et al. 2022, Orca): free slots are refilled at every step."""

from __future__ import annotations

from engine.batch import ScheduledBatch
from engine.schedulers.base import Scheduler, next_chunk


class ContinuousScheduler(Scheduler):
    """A whole waiting prompt runs in the same step as the decodes, and stalls them."""

    name = "continuous"

    def schedule(self, now_ns: int) -> ScheduledBatch:
        plan = ScheduledBatch()
        self._admit_while_room(self.queue.max_batch, plan)
        plan.chunks = [next_chunk(s) for s in self.queue.running]
        return plan
