"""Iteration-level scheduling (Yu et al. 2022, Orca): free slots are refilled at every step."""

from __future__ import annotations

import sys

from engine.batch import ScheduledBatch
from engine.schedulers.base import Scheduler, limit
from engine.sequence import Sequence


class ContinuousScheduler(Scheduler):
    """A whole waiting prompt runs in the same step as the decodes, and stalls them."""

    name = "continuous"

    def schedule(self, now_ns: int) -> ScheduledBatch:
        plan, running = ScheduledBatch(), self.queue.running
        starts = leading_decodes(running)
        rest = running[len(starts) :]
        room = self._prefill_room(len(starts) + sum(not s.in_prefill for s in rest))
        plan.decodes = self.queue.run_decodes(running[: len(starts)], starts)
        for sequence in running if plan.decodes is None else rest:
            if sequence.slot is not None:  # it has not given way to an older one
                room -= self._continue(plan, sequence, room)
        self._admit_while_room(plan, room)
        return plan

    def _prefill_room(self, decodes: int) -> int:
        """Tokens that prompts may get beside the decodes of the step."""
        return sys.maxsize

    def _continue(self, plan: ScheduledBatch, sequence: Sequence, room: int) -> int:
        """Plan a running sequence; what it takes of the room for prompts."""
        known = sequence.uncomputed
        if not sequence.in_prefill:
            self._run(plan, sequence, known)
            return 0
        tokens = min(known, room)
        if tokens < known:
            limit(plan, "tokens")
        return tokens if tokens and self._run(plan, sequence, tokens) else 0

    def _admit_while_room(self, plan: ScheduledBatch, room: int) -> None:
        """First come, first served, until a limit is met; not while somebody has to give way."""
        while self.queue.waiting and not plan.preemptions:
            met = self._limit_met(room)
            if met is not None:
                limit(plan, met)
                return
            # One whose whole context is cached begins as a decode, which nobody has counted yet.
            room -= max(1, self._continue(plan, self._admit(plan), room))

    def _limit_met(self, room: int) -> str | None:
        """What keeps the first that waits from running in this step."""
        if self.queue.num_occupied >= self.queue.max_batch:
            return "sequences"
        if not room:
            return "tokens"
        return None if self.queue.can_admit() else "blocks"


def leading_decodes(running: list[Sequence]) -> list[int]:
    """Where each of the first sequences goes on, up to the first that does not decode.

    Runs over all slots in every step, hence without Sequence.in_prefill.
    """
    starts = []
    for sequence in running:
        computed = sequence.num_computed
        if computed < sequence.prompt_tokens or computed < sequence.recompute_until:
            break
        starts.append(computed)
    return starts
