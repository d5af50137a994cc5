"""A scheduler answers one question: how many tokens of which sequence this step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from engine.batch import Chunk, ScheduledBatch
from engine.schedulers.queue import SequenceQueue
from engine.sequence import Sequence


class Scheduler(ABC):
    """Pure logic over a queue: no torch, no clock of its own.

    A sequence gets its blocks when its chunk is planned. If they do not suffice, the youngest is
    preempted, so the oldest always advances, and nothing that was planned is taken back as long as
    sequences are planned by arrival.
    """

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

    # --- for subclasses ---

    def _run(self, plan: ScheduledBatch, sequence: Sequence, tokens: int, padding: int = 0) -> bool:
        """Plan the sequence's next `tokens` tokens; False if it had to give way itself."""
        start = sequence.num_computed
        end = start + tokens + padding
        if end > sequence.capacity and not self._make_room(plan, sequence, end):
            return False
        plan.others.append(Chunk(sequence, start, tokens, padding, sequence.finished))
        return True

    def _make_room(self, plan: ScheduledBatch, sequence: Sequence, tokens: int) -> bool:
        while not self.queue.grow(sequence, tokens):
            plan.limit_bound = "blocks"
            victim = self._victim()
            if victim.finished:
                self.queue.release(victim)
            else:
                plan.preemptions.append(self.queue.preempt(victim))
            if victim is sequence:
                return False
        return True

    def _victim(self) -> Sequence:
        """Who gives way: padding, which nobody misses, then the youngest that runs."""
        occupied = self.queue.occupied
        return next((s for s in reversed(occupied) if s.finished), occupied[-1])

    def _admit(self, plan: ScheduledBatch, expected_tokens: int = 0) -> Sequence:
        """Admit the first that waits; hits of one that was preempted only shorten its recompute."""
        sequence = self.queue.admit(expected_tokens)
        plan.admitted.append(sequence)
        if not sequence.preemptions:
            plan.prefix_hit_tokens += sequence.cached_tokens
        return sequence


def limit(plan: ScheduledBatch, what: str) -> None:
    """The first limit that a step meets is the one that bound it."""
    if plan.limit_bound == "none":
        plan.limit_bound = what
