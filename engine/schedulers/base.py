"""A scheduler answers one question: how many tokens of which sequence this step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from engine.batch import Chunk, ScheduledBatch
from engine.schedulers.queue import SequenceQueue
from engine.sequence import Sequence


class Scheduler(ABC):
    """Pure logic over a queue: no torch, no clock of its own."""

    name: ClassVar[str]

    def __init__(self, queue: SequenceQueue) -> None:
        self.queue = queue

    @abstractmethod
    def schedule(self, now_ns: int) -> ScheduledBatch:
        """The plan of the next step; no chunks when nothing can run now."""

    def finished(self, sequence: Sequence) -> None:
        """A running sequence has finished: by default its slot and blocks are free at once."""
        self.queue.release(sequence)

    def wake_ns(self) -> int | None:
        """When to ask again although nothing arrives; None: only when something arrives."""
        return None

    def leave(self) -> None:
        """Another scheduler takes over: finished sequences must not keep their slots."""
        for sequence in self.queue.occupied:
            if sequence.finished:
                self.queue.release(sequence)

    def _admit_while_room(self, limit: int, plan: ScheduledBatch) -> None:
        """First come, first served, until `limit` sequences run or a reservation does not fit."""
        queue = self.queue
        while queue.waiting:
            if len(queue.occupied) >= limit:
                plan.limit_bound = "sequences"
                return
            tokens = queue.waiting[0].max_tokens_total
            if not queue.blocks.can_reserve(tokens):
                plan.limit_bound = "blocks"
                return
            plan.admitted.append(queue.admit(tokens))


def next_chunk(sequence: Sequence) -> Chunk:
    """All that is known of a sequence and not yet computed."""
    return Chunk(sequence, sequence.num_computed, sequence.uncomputed)
