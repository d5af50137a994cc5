"""A backend that computes nothing: drives the real schedulers through whole workloads.

In place of keys and values a KV slot holds which tokens led up to it. So every step checks that
each sequence finds in its slots exactly its own context, whoever computed it: a block that is
shared wrongly, lost, or overwritten is found where it is read. The next token is a function of the
context, so that a request's tokens must be the same under every schedule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.batch import Chunk, ScheduledBatch
from engine.block_manager import BlockManager
from engine.request import Request, SamplingParams
from engine.schedulers import SequenceQueue, make_scheduler
from engine.sequence import Sequence

STEP_NS = 10_000_000
PADDING = -1  # in a slot that a padding row wrote

Row = tuple[int, int, int, int, bool]  # request_id, start, tokens, padding, padded


@dataclass
class Simulation:
    """A request is a prompt (its length, or its tokens) and the length of its output."""

    scheduler_name: str
    max_batch: int = 4
    blocks: int = 64
    block_size: int = 4
    chunk_tokens: int = 256
    prefix_cache: bool = False
    now_ns: int = 0
    plans: list[list[Row]] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    admissions: list[int] = field(default_factory=list)  # again after a preemption, too
    preemptions: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    prefill_tokens: int = 0
    decode_tokens: int = 0
    recomputed_tokens: int = 0
    prefix_hit_tokens: int = 0
    evictions: int = 0
    _kv: dict[int, int] = field(default_factory=dict)
    _live: dict[int, Sequence] = field(default_factory=dict)
    _next: int = 0

    def __post_init__(self) -> None:
        blocks = BlockManager(self.blocks, self.block_size, prefix_cache=self.prefix_cache)
        self.queue = SequenceQueue(blocks, self.max_batch, self.chunk_tokens)
        self.scheduler = make_scheduler(self.scheduler_name, self.queue)

    # --- what can happen between steps ---

    def submit(self, prompt: int | Iterable[int], output: int) -> Sequence:
        tokens = (7,) * prompt if isinstance(prompt, int) else tuple(prompt)
        sequence = Sequence(
            self._next, Request(tokens, SamplingParams(max_tokens=output), self.now_ns)
        )
        self._next += 1
        self._live[sequence.request_id] = sequence
        self.queue.waiting.append(sequence)
        return sequence

    def cancel(self, request_id: int) -> None:
        """As Engine.cancel."""
        sequence = self._live.pop(request_id)
        sequence.finish_reason = "cancelled"
        self.cancelled.append(request_id)
        if sequence.slot is None:
            self.queue.waiting.remove(sequence)
        else:
            self.scheduler.finished(sequence)
        self.queue.check_integrity()

    def switch(self, name: str) -> None:
        fresh = make_scheduler(name, self.queue)
        self.scheduler.leave()
        self.scheduler = fresh
        self.queue.check_integrity()

    def offer(self, kv_blocks: int) -> int:
        """Offer as many KV blocks as asked, but no fewer than a live request can need."""
        blocks = self.queue.blocks
        needs = [blocks.blocks_for(s.max_tokens_total) for s in self._live.values()]
        blocks.resize(max([1, kv_blocks, *needs]))
        self.queue.check_integrity()
        return blocks.num_blocks

    @property
    def live(self) -> dict[int, Sequence]:
        """Requests that wait or run."""
        return dict(self._live)

    @property
    def idle(self) -> bool:
        return not self.queue.waiting and not self.queue.num_occupied

    # --- steps ---

    def step(self) -> ScheduledBatch:
        """One step with integrity checked; time passes even when nothing runs."""
        plan = self.scheduler.schedule(self.now_ns)
        self.now_ns += STEP_NS
        self.queue.check_integrity()
        self._record(plan)
        for chunk in plan.chunks:
            self._read(chunk)
        for chunk in plan.chunks:
            self._write(chunk)
        ended = [c.sequence for c in plan.chunks if self._advance(c)]
        for sequence in ended:
            sequence.finish_reason = "length"
            self.finished.append(sequence.request_id)
            del self._live[sequence.request_id]
            self.scheduler.finished(sequence)
        self.queue.check_integrity()
        self.evictions += self.queue.blocks.evictions
        self.queue.blocks.drain()
        return plan

    def run(self, limit: int = 10_000) -> None:
        """Until nothing waits or runs."""
        for _ in range(limit):
            if self.idle:
                return
            self.step()
        raise AssertionError("the workload does not end")

    def _record(self, plan: ScheduledBatch) -> None:
        assert len({id(c.sequence) for c in plan.chunks}) == len(plan.chunks)
        assert not {s.request_id for s in plan.preempted} & {s.request_id for s in plan.admitted}
        self.admissions += [s.request_id for s in plan.admitted]
        self.preemptions += [s.request_id for s in plan.preempted]
        self.prefix_hit_tokens += plan.prefix_hit_tokens
        for chunk in plan.chunks:
            self.prefill_tokens += chunk.prefill_tokens
            self.decode_tokens += chunk.decode_tokens
            self.recomputed_tokens += chunk.recomputed_tokens
        if plan.chunks:
            self.limits.append(plan.limit_bound)
            self.plans.append(
                [
                    (c.sequence.request_id, c.start, c.tokens, c.padding, c.padded)
                    for c in plan.chunks
                ]
            )

    # --- the pretended cache ---

    def _read(self, chunk: Chunk) -> None:
        """Its whole context before the step must be its own."""
        sequence = chunk.sequence
        assert chunk.start == sequence.num_computed, "no token is left out or computed twice"
        assert sequence.slots is not None
        found = [self._kv.get(int(slot)) for slot in sequence.slots[: chunk.start]]
        assert found == contexts(sequence.token_ids)[: chunk.start], "a context is not its own"

    def _write(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        assert sequence.slots is not None
        assert chunk.start + chunk.rows <= sequence.capacity
        values = contexts(sequence.token_ids)[chunk.start : chunk.end] + [PADDING] * chunk.padding
        for slot, value in zip(sequence.slots[chunk.start :], values, strict=False):
            self._kv[int(slot)] = value

    def _advance(self, chunk: Chunk) -> bool:
        if chunk.padded:
            return False
        sequence = chunk.sequence
        self.queue.computed(chunk)
        if chunk.emits:
            sequence.token_ids.append(next_token(sequence.token_ids))
        return sequence.output_tokens >= sequence.request.sampling.max_tokens


def contexts(token_ids: Iterable[int]) -> list[int]:
    """What each position's slot holds: a hash of all tokens up to it."""
    value, found = 0, []
    for token in token_ids:
        value = hash((value, token))
        found.append(value)
    return found


def next_token(token_ids: Iterable[int]) -> int:
    return contexts(token_ids)[-1] % 89


def expected_output(prompt: int | Iterable[int], output: int) -> list[int]:
    """The tokens that a request must get under every schedule."""
    tokens = [7] * prompt if isinstance(prompt, int) else list(prompt)
    for _ in range(output):
        tokens.append(next_token(tokens))
    return tokens[len(tokens) - output :]
