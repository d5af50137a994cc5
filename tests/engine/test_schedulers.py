"""Schedulers: plans worked out by hand, a brute-force gold, and properties of random runs."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UserError
from engine.schedulers import SCHEDULERS, make_scheduler
from engine.schedulers.static import WINDOW_NS
from tests.engine.simulation import STEP_NS, Simulation

LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=14)


def test_an_unknown_scheduler_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="continuous, no-batching, static; did you mean 'static'"):
        make_scheduler("statik", Simulation("static").queue)


def test_continuous_by_hand() -> None:
    """Two slots: the third request gets the first one's slot in the step after it ends."""
    sim = Simulation("continuous", max_batch=2)
    for prompt, output in ((3, 1), (2, 3), (4, 2)):
        sim.submit(prompt, output)
    sim.run()
    assert sim.plans == [
        [(0, 0, 3, 0, False), (1, 0, 2, 0, False)],
        [(2, 0, 4, 0, False), (1, 2, 1, 0, False)],
        [(2, 4, 1, 0, False), (1, 3, 1, 0, False)],
    ]
    assert sim.limits == ["sequences", "none", "none"]


def test_no_batching_by_hand() -> None:
    sim = Simulation("no-batching", max_batch=2)
    sim.submit(3, 2)
    sim.submit(2, 1)
    sim.run()
    assert sim.plans == [[(0, 0, 3, 0, False)], [(0, 3, 1, 0, False)], [(1, 0, 2, 0, False)]]
    assert sim.limits == ["sequences", "sequences", "none"]


def test_static_by_hand() -> None:
    """Prompts padded to the longest; the finished row runs until the cohort ends."""
    sim = Simulation("static", max_batch=2)
    for prompt, output in ((4, 1), (2, 3), (1, 1)):
        sim.submit(prompt, output)
    sim.run()
    assert sim.plans[:3] == [
        [(0, 0, 4, 0, False), (1, 0, 2, 2, False)],
        [(0, 4, 1, 0, True), (1, 2, 1, 0, False)],
        [(0, 4, 1, 0, True), (1, 3, 1, 0, False)],
    ]
    assert sim.plans[3:] == [[(2, 0, 1, 0, False)]]


def test_a_static_cohort_waits_for_its_window() -> None:
    sim = Simulation("static", max_batch=4)
    sim.submit(2, 1)
    assert not sim.step().chunks
    assert sim.scheduler.wake_ns() == WINDOW_NS
    while not sim.plans:
        sim.step()
    assert sim.now_ns - STEP_NS >= WINDOW_NS
    sim.submit(2, 2)
    for _ in range(3):
        sim.submit(2, 2)
    assert len(sim.step().chunks) == 4, "a full cohort starts at once"


def test_requests_that_waited_behind_a_cohort_wait_for_no_window() -> None:
    sim = Simulation("static", max_batch=3)
    for _ in range(3):
        sim.submit(2, 9)
    sim.step()
    late = sim.submit(2, 1)
    while sim.queue.occupied:
        sim.step()
    assert sim.now_ns > late.request.arrived_ns + WINDOW_NS
    assert [c.sequence for c in sim.step().chunks] == [late]


def test_static_holds_all_blocks_until_the_cohort_ends() -> None:
    sim = Simulation("static", max_batch=2, blocks=20)
    sim.submit(4, 1)
    sim.submit(4, 5)
    used = []
    while sim.queue.waiting or sim.queue.occupied:
        sim.step()
        used.append(sim.queue.blocks.num_free)
    assert used[:-1] == [used[0]] * (len(used) - 1)
    assert used[-1] == 20


def test_static_fits_padded_prompts_into_the_blocks_there_are() -> None:
    """Alone each needs 3 and 1 blocks; padded to the longest together 3 and 3: not in 4."""
    sim = Simulation("static", max_batch=2, blocks=4)
    sim.submit(12, 1)
    sim.submit(1, 1)
    sim.run()
    assert [len(p) for p in sim.plans] == [1, 1]
    assert sim.limits[0] == "blocks"


def gold_continuous(lengths: list[tuple[int, int]], slots: int) -> list[set[int]]:
    """Who runs in each step, by a simulation without blocks that shares no code."""
    waiting = deque(range(len(lengths)))
    left: dict[int, int] = {}
    steps: list[set[int]] = []
    while waiting or left:
        while waiting and len(left) < slots:
            request = waiting.popleft()
            left[request] = lengths[request][1]
        steps.append(set(left))
        left = {r: n - 1 for r, n in left.items() if n > 1}
    return steps


def gold_static(lengths: list[tuple[int, int]], slots: int) -> list[set[int]]:
    steps: list[set[int]] = []
    for first in range(0, len(lengths), slots):
        cohort = range(first, min(first + slots, len(lengths)))
        steps += [set(cohort)] * max(lengths[r][1] for r in cohort)
    return steps


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 5))
def test_plans_equal_the_gold(lengths: list[tuple[int, int]], slots: int) -> None:
    for name, gold in (("continuous", gold_continuous), ("static", gold_static)):
        sim = Simulation(name, max_batch=slots, blocks=500)
        for prompt, output in lengths:
            sim.submit(prompt, output)
        sim.run()
        assert [{row[0] for row in plan} for plan in sim.plans] == gold(lengths, slots)


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 5), st.integers(6, 20))
def test_every_request_finishes_and_nothing_leaks(
    name: str, lengths: list[tuple[int, int]], slots: int, blocks: int
) -> None:
    """Random loads over small caches: all end, first come is first admitted, blocks come back."""
    sim = Simulation(name, max_batch=slots, blocks=blocks)
    sequences = [sim.submit(prompt, output) for prompt, output in lengths]
    sim.run()
    assert sorted(sim.finished) == list(range(len(lengths)))
    assert sim.admissions == sorted(sim.admissions)
    assert [s.output_tokens for s in sequences] == [output for _, output in lengths]
    assert sim.queue.blocks.num_free == blocks
    assert all(len(plan) <= slots for plan in sim.plans)
    padding = sum(row[3] + row[4] for plan in sim.plans for row in plan)
    assert name == "static" or padding == 0


@settings(max_examples=150, deadline=None)
@given(
    LENGTHS,
    st.lists(
        st.tuples(st.sampled_from(sorted(SCHEDULERS)), st.integers(1, 6), st.integers(1, 4)),
        max_size=12,
    ),
)
def test_switching_while_running_loses_nothing(
    lengths: list[tuple[int, int]], switches: list[tuple[str, int, int]]
) -> None:
    sim = Simulation("continuous", max_batch=3, blocks=40)
    sequences = [sim.submit(prompt, output) for prompt, output in lengths]
    for name, max_batch, steps in switches:
        sim.switch(name)
        sim.queue.resize(max_batch)
        for _ in range(steps):
            sim.step()
    sim.run()
    assert sorted(sim.finished) == list(range(len(lengths)))
    assert [s.output_tokens for s in sequences] == [output for _, output in lengths]
    assert sim.queue.blocks.num_free == 40


def test_fewer_slots_let_running_sequences_finish() -> None:
    sim = Simulation("continuous", max_batch=4)
    for _ in range(6):
        sim.submit(2, 4)
    sim.step()
    sim.queue.resize(1)
    assert len(sim.step().chunks) == 4
    sim.run()
    assert [len(p) for p in sim.plans] == [4, 4, 4, 4] + [1] * 8
    assert len(sim.queue.slots) == 1
