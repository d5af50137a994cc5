"""Static batching: a cohort starts together and holds its slots until its longest member ends."""

from __future__ import annotations

from engine.batch import Chunk, ScheduledBatch
from engine.schedulers.base import Scheduler
from engine.sequence import Sequence

WINDOW_NS = 50_000_000  # how long an incomplete cohort waits for more requests


class StaticScheduler(Scheduler):
    """Padding really executes.

    Prompts are padded at the right to the longest of the cohort; padding rows go through every
    layer, attend causally and write KV into slots that the sequence's own tokens overwrite later.
    A finished sequence runs on as one padding row a step: its last token over its context.
    """

    name = "static"

    def schedule(self, now_ns: int) -> ScheduledBatch:
        plan = ScheduledBatch()
        if not self.queue.occupied and self._cohort_is_due(now_ns):
            self._form_cohort(plan)
        plan.chunks = self._chunks(plan.admitted)
        if self.queue.waiting and plan.chunks and plan.limit_bound == "none":
            plan.limit_bound = "sequences"  # the cohort is closed, whether or not slots are free
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
        longest = max((s.uncomputed for s in members), default=0)
        for member in members:
            plan.admitted.append(self.queue.admit(max(longest, member.max_tokens_total)))

    def _members(self, plan: ScheduledBatch) -> list[Sequence]:
        """As many of the first waiting sequences as slots and blocks allow, padding included."""
        queue, members = self.queue, list[Sequence]()
        for sequence in list(queue.waiting)[: queue.max_batch]:
            grown = [*members, sequence]
            longest = max(s.uncomputed for s in grown)
            need = sum(queue.blocks.blocks_for(max(longest, s.max_tokens_total)) for s in grown)
            if need > queue.blocks.num_free:
                plan.limit_bound = "blocks"
                break
            members = grown
        return members

    def _chunks(self, admitted: list[Sequence]) -> list[Chunk]:
        longest = max((s.uncomputed for s in admitted), default=0)
        chunks = []
        for sequence in self.queue.occupied:
            start, tokens = sequence.num_computed, sequence.uncomputed
            padding = longest - tokens if longest and not sequence.finished else 0
            chunks.append(Chunk(sequence, start, tokens, padding, padded=sequence.finished))
        return chunks

    def finished(self, sequence: Sequence) -> None:
        """KV and slots are held until all of the cohort have finished."""
        if not self.queue.running:
            self.leave()

    def wake_ns(self) -> int | None:
        if self.queue.occupied or not self.queue.waiting:
            return None
        return self._window_end_ns()
