"""Every scheduler as a state machine: 300 random runs each, all settings changing on the way.

What must hold whatever happens, with the books checked after every operation:

- The budget: under `chunked` no step runs more than max(budget, decodes + 1) tokens, and under
  `chunked` and `continuous` every sequence that decodes gets its token or gives way.
- First come, first served: nobody is admitted while somebody who came earlier waits.
- Fairness is bounded: every step that runs advances the oldest live request by a token at least,
  and never preempts it. So a request is admitted after at most as many steps as those who came
  before it have tokens to compute, and has ended after as many more as it has itself.
- Nothing stalls: a step runs nothing only if nobody is there, or an incomplete static cohort is
  within its window.
- In the end everybody got exactly its tokens, and all blocks are free.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from engine.batch import ScheduledBatch
from engine.schedulers import SCHEDULERS
from engine.schedulers.static import WINDOW_NS
from engine.sequence import Sequence
from telemetry.schema import LIMITS
from tests.engine.simulation import Simulation, expected_output

RUNS = 300
STEPS = 25
CAPACITY = 16  # blocks of 4
NAMES = sorted(SCHEDULERS)
COMMON = (0, 1, 1, 0, 1, 0, 0, 0, 1, 1)
PROMPTS = st.builds(
    lambda common, own: [*COMMON[:common], *own],
    st.integers(0, len(COMMON)),
    st.lists(st.integers(0, 1), min_size=1, max_size=6),
)
# One rule draws among these: hypothesis leaves some rules out of a run, and without any one of
# them the others have nothing to do.
KINDS = (
    *("submit", "submit", "submit", "submit", "steps", "steps", "steps", "steps", "come_home"),
    *("cancel", "switch", "resize", "set_budget", "offer", "set_prefix_cache"),
)


class SchedulerMachine(RuleBasedStateMachine):
    """A workload nobody would send, and settings nobody would choose."""

    home: ClassVar[str]
    runs: ClassVar[int] = 0
    met: ClassVar[Counter[str]]

    @initialize(
        slots=st.integers(2, 5),
        budget=st.integers(1, 12),
        blocks=st.integers(8, CAPACITY),
        prefix_cache=st.booleans(),
    )
    def begin(self, slots: int, budget: int, blocks: int, prefix_cache: bool) -> None:
        self.sim = Simulation(
            self.home,
            max_batch=slots,
            blocks=CAPACITY,
            chunk_tokens=budget,
            prefix_cache=prefix_cache,
        )
        self.sim.offer(blocks)
        self.asked: dict[int, tuple[list[int], int, Sequence]] = {}
        self.ran = 0  # steps in which anything ran
        self.admitted_by: dict[int, int] = {}  # at the latest, in steps that ran
        self.waiting: set[int] = set()  # never admitted yet

    # --- what can happen ---

    @rule(kind=st.sampled_from(KINDS), data=st.data())
    def operate(self, kind: str, data: st.DataObject) -> None:
        getattr(self, kind)(data)

    def submit(self, data: st.DataObject) -> None:
        prompt, output = data.draw(PROMPTS), data.draw(st.integers(1, 24))
        if not self.sim.queue.blocks.can_ever_fit(len(prompt) + output):
            return  # refused
        ahead = sum(s.max_tokens_total - 1 for s in self.sim.live.values())
        sequence = self.sim.submit(prompt, output)
        self.asked[sequence.request_id] = (prompt, output, sequence)
        self.admitted_by[sequence.request_id] = self.ran + ahead
        self.waiting.add(sequence.request_id)

    def cancel(self, data: st.DataObject) -> None:
        if self.sim.live:
            request_id = data.draw(st.sampled_from(sorted(self.sim.live)))
            self.sim.cancel(request_id)
            self.waiting.discard(request_id)

    def switch(self, data: st.DataObject) -> None:
        self.sim.switch(data.draw(st.sampled_from(NAMES)))

    def come_home(self, data: st.DataObject) -> None:
        self.sim.switch(self.home)

    def resize(self, data: st.DataObject) -> None:
        self.sim.queue.resize(data.draw(st.integers(1, 5)))

    def set_budget(self, data: st.DataObject) -> None:
        self.sim.queue.set_chunk_tokens(data.draw(st.integers(1, 12)))

    def offer(self, data: st.DataObject) -> None:
        self.sim.offer(data.draw(st.integers(1, CAPACITY)))

    def set_prefix_cache(self, data: st.DataObject) -> None:
        self.sim.queue.blocks.set_prefix_cache(data.draw(st.booleans()))

    def steps(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.integers(1, 6))):
            self.step()

    def step(self) -> None:
        queue, now_ns = self.sim.queue, self.sim.now_ns
        decoding = {s.request_id for s in queue.running if not s.in_prefill}
        oldest = min(self.sim.live, default=None)
        waiting, running = list(queue.waiting), queue.running
        plan = self.sim.step()
        assert plan.limit_bound in LIMITS
        self._check_budget(plan, decoding)
        self._check_order(plan, waiting)
        if plan.chunks:
            assert oldest is None or self._advances(plan, oldest)
            self._note_admissions(plan)
            self.ran += oldest is not None
        elif oldest is not None:
            assert self.sim.scheduler.name == "static"
            assert not running
            assert len(waiting) < queue.max_batch
            assert now_ns < waiting[0].request.arrived_ns + WINDOW_NS

    def _check_budget(self, plan: ScheduledBatch, decoding: set[int]) -> None:
        name = self.sim.scheduler.name
        tokens = {c.sequence.request_id: c.rows for c in plan.chunks}
        if name == "chunked":
            budget = self.sim.queue.chunk_tokens
            assert sum(tokens.values()) <= max(budget, len(decoding) + 1)
        if name in ("chunked", "continuous"):
            gave_way = {s.request_id for s in plan.preempted}
            assert all(tokens.get(r) == 1 for r in decoding - gave_way)
        if name == "no-batching":
            assert len(tokens) <= 1

    def _check_order(self, plan: ScheduledBatch, waiting: list[Sequence]) -> None:
        assert plan.admitted == waiting[: len(plan.admitted)]

    @staticmethod
    def _advances(plan: ScheduledBatch, oldest: int) -> bool:
        chunks = [c for c in plan.chunks if c.sequence.request_id == oldest]
        assert oldest not in {s.request_id for s in plan.preempted}
        return len(chunks) == 1 and chunks[0].tokens >= 1 and not chunks[0].padded

    def _note_admissions(self, plan: ScheduledBatch) -> None:
        for sequence in plan.admitted:
            if sequence.request_id in self.waiting:
                assert self.ran <= self.admitted_by[sequence.request_id]
                self.waiting.discard(sequence.request_id)

    # --- what must hold after every operation ---

    @invariant()
    def nobody_waits_or_runs_too_long(self) -> None:
        self.sim.queue.check_integrity()
        for request_id, sequence in self.sim.live.items():
            latest = self.admitted_by[request_id]
            assert self.ran <= latest or request_id not in self.waiting
            assert self.ran <= latest + sequence.max_tokens_total - 1

    def teardown(self) -> None:
        if not hasattr(self, "sim"):
            return
        while not self.sim.idle:
            self.step()
        assert sorted([*self.sim.finished, *self.sim.cancelled]) == sorted(self.asked)
        for prompt, output, sequence in self.asked.values():
            got = sequence.output_token_ids
            assert got == expected_output(prompt, output)[: len(got)]
            assert len(got) == output or sequence.request_id in self.sim.cancelled
        self.met.update(
            preemptions=len(self.sim.preemptions),
            hits=self.sim.prefix_hit_tokens,
            evictions=self.sim.evictions,
            cancelled=len(self.sim.cancelled),
        )
        blocks = self.sim.queue.blocks
        assert (blocks.num_used, blocks.num_tables) == (0, 0)
        assert blocks.num_free == blocks.num_blocks
        type(self).runs += 1


@pytest.mark.parametrize("name", NAMES)
def test_three_hundred_random_runs(name: str) -> None:
    class Machine(SchedulerMachine):
        home = name
        runs = 0
        met: ClassVar[Counter[str]] = Counter()

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=RUNS, stateful_step_count=STEPS, deadline=None)
    )
    assert Machine.runs >= RUNS
    assert all(Machine.met.values()), "runs in which nothing happens prove nothing"
