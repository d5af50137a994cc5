"""Static batching: a cohort starts together and holds its slots until its longest member ends."""

from __future__ import annotations

from engine.batch import ScheduledBatch
from engine.schedulers.base import Scheduler, limit
from engine.sequence import Sequence

WINDOW_NS = 50_000_000  # how long an incomplete cohort waits for more requests


class StaticScheduler(Scheduler):
    """Padding really executes.

    Prompts are padded at the right to the longest of the cohort; padding rows go through every
    layer, attend causally and write KV into slots that the sequence's own tokens overwrite later.
    A prefix found in the cache is left out of the rows, and changes nothing about the padding.
    A finished sequence runs on as one padding row a step: its last token over its context.

    A cohort is admitted only if the longest answers of all its members fit at once, so it runs out
    of blocks only if fewer are offered meanwhile: then padding goes first, then the youngest.
    """

    name = "static"

    def schedule(self, now_ns: int) -> ScheduledBatch:
        plan = ScheduledBatch()
        if self.queue.running:
            self._continue(plan)
        else:
            self.leave()  # members who gave way may have left nothing but padding
            if self._cohort_is_due(now_ns):
                self._form_cohort(plan)
        if self.queue.waiting and plan.others:
            limit(plan, "sequences")  # the cohort is closed, whether or not slots are free
        return plan

    def _cohort_is_due(self, now_ns: int) -> bool:
        """Enough wait for a full cohort, or the first of them has waited for a window."""
        queue = self.queue
        if not queue.waiting:
            return False
        return len(queue.waiting) >= queue.max_batch or now_ns >= self._window_end_ns()

    def _window_end_ns(self) -> int:
        return self.queue.waiting[0].request.arrived_ns + WINDOW_NS

    def _form_cohort(self, plan: ScheduledBatch) -> None:
        members = self._members(plan)
        longest = max(len(s.token_ids) for s in members)
        for _ in members:
            member = self._admit(plan, longest)
            self._run(plan, member, member.uncomputed, longest - len(member.token_ids))

    def _members(self, plan: ScheduledBatch) -> list[Sequence]:
        """As many of the first waiting sequences as slots and blocks allow, padding included."""
        queue, members = self.queue, list[Sequence]()
        for sequence in list(queue.waiting)[: queue.max_batch]:
            grown = [*members, sequence]
            longest = max(len(s.token_ids) for s in grown)
            need = sum(queue.blocks.blocks_for(max(longest, s.max_tokens_total)) for s in grown)
            if need > queue.blocks.num_free:
                limit(plan, "blocks")
                break
            members = grown
        return members

    def _continue(self, plan: ScheduledBatch) -> None:
        """Members first, then padding, which never pushes a member out; rows in order of arrival.

        What another scheduler left half computed runs whole.
        """
        for sequence in self.queue.running:
            if sequence.slot is not None:
                self._run(plan, sequence, sequence.uncomputed)
        for sequence in self.queue.occupied:
            if sequence.finished and sequence.slot is not None:
                self._run(plan, sequence, 1)
        plan.others.sort(key=lambda c: c.sequence.request_id)

    def finished(self, sequence: Sequence) -> None:
        """KV and slots are held until all of the cohort have finished."""
        if not self.queue.running:
            self.leave()

    def wake_ns(self) -> int | None:
        if self.queue.num_occupied or not self.queue.waiting:
            return None
        return self._window_end_ns()
