"""A backend that computes nothing: drives the real schedulers through whole workloads."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.batch import Chunk, ScheduledBatch
from engine.block_manager import BlockManager
from engine.request import Request, SamplingParams
from engine.schedulers import SequenceQueue, make_scheduler
from engine.sequence import Sequence

STEP_NS = 10_000_000


@dataclass
class Simulation:
    """Requests are (prompt, output) lengths; a sequence ends after its output."""

    scheduler_name: str
    max_batch: int = 4
    blocks: int = 64
    block_size: int = 4
    now_ns: int = 0
    plans: list[list[tuple[int, int, int, int, bool]]] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    admissions: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    _next: int = 0

    def __post_init__(self) -> None:
        self.queue = SequenceQueue(BlockManager(self.blocks, self.block_size), self.max_batch)
        self.scheduler = make_scheduler(self.scheduler_name, self.queue)

    def submit(self, prompt: int, output: int) -> Sequence:
        request = Request((7,) * prompt, SamplingParams(max_tokens=output), self.now_ns)
        sequence = Sequence(self._next, request)
        self._next += 1
        self.queue.waiting.append(sequence)
        return sequence

    def switch(self, name: str) -> None:
        fresh = make_scheduler(name, self.queue)
        self.scheduler.leave()
        self.scheduler = fresh

    def step(self) -> ScheduledBatch:
        """One step with integrity checked; time passes even when nothing runs."""
        plan = self.scheduler.schedule(self.now_ns)
        self.now_ns += STEP_NS
        self.queue.check_integrity()
        assert len({id(c.sequence) for c in plan.chunks}) == len(plan.chunks)
        self.admissions += [s.request_id for s in plan.admitted]
        if plan.chunks:
            self.limits.append(plan.limit_bound)
            self.plans.append(
                [
                    (c.sequence.request_id, c.start, c.tokens, c.padding, c.padded)
                    for c in plan.chunks
                ]
            )
        for chunk in plan.chunks:
            self.queue.blocks.use(chunk.sequence.request_id, chunk.start + chunk.rows)
        ended = [c.sequence for c in plan.chunks if self._advance(c)]
        for sequence in ended:
            sequence.finish_reason = "length"
            self.finished.append(sequence.request_id)
            self.scheduler.finished(sequence)
        self.queue.check_integrity()
        return plan

    @staticmethod
    def _advance(chunk: Chunk) -> bool:
        if chunk.padded:
            return False
        sequence = chunk.sequence
        assert chunk.start == sequence.num_computed, "computed tokens are never computed twice"
        sequence.num_computed = chunk.end
        if chunk.emits:
            sequence.token_ids.append(9)
        return sequence.output_tokens >= sequence.request.sampling.max_tokens

    def run(self, limit: int = 10_000) -> None:
        """Until nothing waits or runs."""
        for _ in range(limit):
            if not self.queue.waiting and not self.queue.occupied:
                return
            self.step()
        raise AssertionError("the workload does not end")
