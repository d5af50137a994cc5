"""Every plan of every scheduler against the brute-force gold, row by row."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.schedulers import SCHEDULERS
from tests.engine.gold import Gold, Plan
from tests.engine.simulation import Simulation, expected_output

EXAMPLES = 150
BLOCK_SIZE = 4
AMPLE = 80  # more than all requests of a workload can need together
NAMES = sorted(SCHEDULERS)


@dataclass(frozen=True)
class Arrival:
    """after: steps since the arrival before."""

    after: int
    prompt: int
    output: int


ARRIVALS = st.lists(
    st.builds(Arrival, st.integers(0, 6), st.integers(1, 14), st.integers(1, 9)),
    min_size=1,
    max_size=12,
)
LONG_ARRIVALS = st.lists(  # up to 12 blocks each
    st.builds(Arrival, st.integers(0, 6), st.integers(1, 14), st.integers(1, 34)),
    min_size=2,
    max_size=8,
)
CHANGES = st.dictionaries(  # by step
    st.integers(0, 40),
    st.tuples(st.sampled_from(NAMES), st.integers(1, 5), st.integers(1, 12), st.integers(6, 18)),
    max_size=8,
)


class Pair:
    """The real scheduler and the gold, given the same at the same time."""

    def __init__(
        self, name: str, slots: int, budget: int, blocks: int, *, prefix_cache: bool = False
    ) -> None:
        self.sim = Simulation(
            name,
            max_batch=slots,
            blocks=blocks,
            block_size=BLOCK_SIZE,
            chunk_tokens=budget,
            prefix_cache=prefix_cache,
        )
        self.gold = Gold(name, slots, blocks, BLOCK_SIZE, budget, prefix_cache)

    def submit(self, prompt: list[int], output: int) -> None:
        self.gold.submit(prompt + expected_output(prompt, output), len(prompt), self.sim.now_ns)
        self.sim.submit(prompt, output)

    def change(self, name: str, slots: int, budget: int, blocks: int) -> None:
        if self.sim.scheduler.name != name:
            self.sim.switch(name)
            self.gold.switch(name)
        self.sim.queue.resize(slots)
        self.sim.queue.set_chunk_tokens(budget)
        self.gold.slots, self.gold.budget = slots, budget
        self.gold.offer(blocks)
        assert self.sim.offer(blocks) == self.gold.offered

    def step(self) -> Plan:
        """Both step; their plans must be the same."""
        expected = self.gold.step(self.sim.now_ns)
        seen = len(self.sim.plans)
        plan = self.sim.step()
        rows = self.sim.plans[-1] if len(self.sim.plans) > seen else []
        admitted = [s.request_id for s in plan.admitted]
        preempted = [s.request_id for s in plan.preempted]
        assert (rows, plan.limit_bound, admitted, preempted) == expected
        return expected

    def run(self, arrivals: list[Arrival], changes: dict[int, tuple[str, int, int, int]]) -> None:
        prompts = [[7 + i] * a.prompt for i, a in enumerate(arrivals)]
        self.run_prompts(prompts, arrivals, changes)

    def run_prompts(
        self,
        prompts: list[list[int]],
        arrivals: list[Arrival],
        changes: dict[int, tuple[str, int, int, int]],
    ) -> None:
        due, left = 0, list(zip(arrivals, prompts, strict=True))
        for step in range(4000):
            while left and step >= due + left[0][0].after:
                arrival, prompt = left.pop(0)
                due += arrival.after
                self.submit(prompt, arrival.output)
            if step in changes:
                self.change(*changes[step])
            if not left and self.sim.idle:
                break
            self.step()
        assert sorted(self.sim.finished) == list(range(len(arrivals)))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(ARRIVALS, st.integers(1, 5), st.integers(1, 20))
def test_with_ample_blocks(name: str, arrivals: list[Arrival], slots: int, budget: int) -> None:
    pair = Pair(name, slots, budget, blocks=AMPLE)
    pair.run(arrivals, {})
    assert not pair.sim.preemptions


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(LONG_ARRIVALS, st.integers(2, 5), st.integers(1, 12), st.integers(12, 20))
def test_with_so_few_blocks_that_sequences_give_way(
    name: str, arrivals: list[Arrival], slots: int, budget: int, blocks: int
) -> None:
    Pair(name, slots, budget, blocks).run(arrivals, {})


@settings(max_examples=EXAMPLES, deadline=None)
@given(ARRIVALS, CHANGES)
def test_while_everything_changes(
    arrivals: list[Arrival], changes: dict[int, tuple[str, int, int, int]]
) -> None:
    Pair("continuous", slots=3, budget=8, blocks=18).run(arrivals, changes)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(ARRIVALS, st.integers(1, 5), st.integers(1, 20), st.data())
def test_with_shared_prefixes(
    name: str, arrivals: list[Arrival], slots: int, budget: int, data: st.DataObject
) -> None:
    """Prompts of two words; whatever was computed once is found again."""
    words = [
        data.draw(st.lists(st.integers(0, 1), min_size=a.prompt, max_size=a.prompt))
        for a in arrivals
    ]
    pair = Pair(name, slots, budget, blocks=AMPLE, prefix_cache=True)
    pair.run_prompts(words, arrivals, {})
    assert not pair.sim.evictions


def test_the_tight_cache_really_is_tight() -> None:
    """The workloads above mean something: here the same sizes preempt, and cut a recompute."""
    pair = Pair("chunked", slots=4, budget=5, blocks=6)
    pair.run([Arrival(0, 8, 9), Arrival(0, 8, 9), Arrival(1, 3, 4)], {})
    assert pair.sim.preemptions
    assert {"blocks", "tokens", "none"} <= set(pair.sim.limits)
