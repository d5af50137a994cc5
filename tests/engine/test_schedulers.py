"""Schedulers: plans worked out by hand, and properties of random runs.

The brute-force gold of every plan is in test_plans_gold.py, long random runs with everything
changing in test_scheduler_machines.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UserError
from engine.schedulers import SCHEDULERS, make_scheduler
from engine.schedulers.static import WINDOW_NS
from tests.engine.simulation import STEP_NS, Row, Simulation, expected_output

LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=14)


def test_an_unknown_scheduler_lists_the_known_ones() -> None:
    known = "chunked, continuous, no-batching, static; did you mean 'static'"
    with pytest.raises(UserError, match=known):
        make_scheduler("statik", Simulation("static").queue)


def test_continuous_by_hand() -> None:
    """Two slots: the third request gets the first one's slot in the step after it ends."""
    sim = Simulation("continuous", max_batch=2)
    for prompt, output in ((3, 1), (2, 3), (4, 2)):
        sim.submit(prompt, output)
    sim.run()
    assert sim.plans == [
        [(0, 0, 3, 0, False), (1, 0, 2, 0, False)],
        [(1, 2, 1, 0, False), (2, 0, 4, 0, False)],
        [(1, 3, 1, 0, False), (2, 4, 1, 0, False)],
    ]
    assert sim.limits == ["sequences", "none", "none"]


def test_chunked_by_hand() -> None:
    """Budget 4: the decode is never cut, prompts share what is left in order of arrival."""
    sim = Simulation("chunked", max_batch=3, chunk_tokens=4)
    for prompt, output in ((3, 4), (6, 2), (2, 2)):
        sim.submit(prompt, output)
    sim.run()
    assert sim.plans == [
        [(0, 0, 3, 0, False), (1, 0, 1, 0, False)],
        [(0, 3, 1, 0, False), (1, 1, 3, 0, False)],
        [(0, 4, 1, 0, False), (1, 4, 2, 0, False), (2, 0, 1, 0, False)],
        [(0, 5, 1, 0, False), (1, 6, 1, 0, False), (2, 1, 1, 0, False)],
        [(2, 2, 1, 0, False)],
    ]
    assert sim.limits == ["tokens", "tokens", "tokens", "none", "none"]


def test_prompts_get_a_token_even_when_decodes_use_up_the_budget() -> None:
    sim = Simulation("chunked", max_batch=4, chunk_tokens=2)
    for _ in range(3):
        sim.submit(1, 9)
    sim.submit(3, 1)
    for _ in range(2):
        sim.step()
    assert [(r[0], r[2]) for r in sim.plans[-1]] == [(0, 1), (1, 1), (2, 1)]
    assert sim.limits[-1] == "tokens", "the third prompt took the one token there is"
    for _ in range(3):
        sim.step()
        assert [(r[0], r[2]) for r in sim.plans[-1]] == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_continuous_runs_whole_prompts_where_chunked_cuts_them() -> None:
    most = {}
    for name in ("continuous", "chunked"):
        sim = Simulation(name, chunk_tokens=8)
        sim.submit(2, 20)
        sim.step()
        sim.submit(40, 1)
        sim.run()
        most[name] = max(sum(row[2] for row in plan) for plan in sim.plans)
    assert most == {"continuous": 41, "chunked": 8}


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
    assert used == [18, 16, 16, 16, 20], "the finished row repeats its last token in a second block"


def test_static_fits_padded_prompts_into_the_blocks_there_are() -> None:
    """Alone each needs 3 and 1 blocks; padded to the longest together 3 and 3: not in 4."""
    sim = Simulation("static", max_batch=2, blocks=4)
    sim.submit(12, 1)
    sim.submit(1, 1)
    sim.run()
    assert [len(p) for p in sim.plans] == [1, 1]
    assert sim.limits[0] == "blocks"


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 5), st.integers(6, 20), st.integers(1, 9), st.booleans())
def test_every_request_finishes_and_nothing_leaks(
    name: str,
    lengths: list[tuple[int, int]],
    slots: int,
    blocks: int,
    budget: int,
    prefix_cache: bool,
) -> None:
    """Random loads over small caches: all end, first come is first admitted, blocks come back."""
    sim = Simulation(
        name, max_batch=slots, blocks=blocks, chunk_tokens=budget, prefix_cache=prefix_cache
    )
    sequences = [sim.submit(prompt, output) for prompt, output in lengths]
    sim.run()
    assert sorted(sim.finished) == list(range(len(lengths)))
    assert list(dict.fromkeys(sim.admissions)) == list(range(len(lengths)))
    for sequence, (prompt, output) in zip(sequences, lengths, strict=True):
        assert sequence.output_token_ids == expected_output(prompt, output)
    assert sim.queue.blocks.num_free == blocks
    assert all(len(plan) <= slots for plan in sim.plans)
    padding = sum(row[3] + row[4] for plan in sim.plans for row in plan)
    assert name == "static" or padding == 0
    assert name != "chunked" or all(within(plan, budget) for plan in sim.plans)
    assert sim.decode_tokens == sum(output - 1 for _, output in lengths)
    prompts = sum(prompt for prompt, _ in lengths)
    assert sim.prefill_tokens + sim.prefix_hit_tokens <= prompts
    if not prefix_cache:
        assert sim.prefill_tokens == prompts
        assert (sim.prefix_hit_tokens, sim.evictions) == (0, 0)
    if not sim.preemptions:
        assert sim.prefill_tokens + sim.prefix_hit_tokens == prompts
        assert sim.recomputed_tokens == 0


def within(plan: list[Row], budget: int) -> bool:
    """The budget holds, but for decodes, and one token that prompts always get."""
    return sum(row[2] for row in plan) <= max(budget, len(plan))


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(sorted(SCHEDULERS)),
        st.integers(1, 6),  # max batch
        st.integers(1, 9),  # token budget
        st.booleans(),  # prefix cache
        st.integers(6, 20),  # blocks offered
        st.integers(0, 40),  # who is cancelled, if it still lives
        st.integers(1, 4),  # steps until the next
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(LENGTHS, CHANGES)
def test_changing_everything_while_running_loses_nothing(
    lengths: list[tuple[int, int]], changes: list[tuple[str, int, int, bool, int, int, int]]
) -> None:
    sim = Simulation("continuous", max_batch=3, blocks=20)
    sequences = [sim.submit(prompt, output) for prompt, output in lengths]
    for name, max_batch, budget, prefix_cache, blocks, cancelled, steps in changes:
        sim.switch(name)
        sim.queue.resize(max_batch)
        sim.queue.set_chunk_tokens(budget)
        sim.queue.blocks.set_prefix_cache(prefix_cache)
        sim.offer(blocks)
        if cancelled in sim.live:
            sim.cancel(cancelled)
        for _ in range(steps):
            waits = not sim.idle
            ran = bool(sim.step().chunks)
            assert ran or not waits or name == "static", "nothing stalls"
    sim.run()
    assert sorted([*sim.finished, *sim.cancelled]) == list(range(len(lengths)))
    for sequence, (prompt, output) in zip(sequences, lengths, strict=True):
        expected = expected_output(prompt, output)
        assert sequence.output_token_ids == expected[: sequence.output_tokens]
        assert sequence.output_tokens == output or sequence.finish_reason == "cancelled"
    assert sim.queue.blocks.num_free == sim.queue.blocks.num_blocks


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
