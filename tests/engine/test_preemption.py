"""Schedulers when KV blocks run out or are shared: plans worked out by hand."""

from __future__ import annotations

import pytest

from engine.schedulers import SCHEDULERS
from tests.engine.simulation import Simulation, expected_output

# --- running out of blocks ---


def test_the_youngest_gives_way_and_computes_again_what_it_had() -> None:
    """Six blocks of 4 for two requests that need 4 each; worked out by hand."""
    sim = Simulation("continuous", blocks=6)
    old, young = sim.submit(8, 8), sim.submit(8, 8)
    sim.step()
    for _ in range(4):
        sim.step()
    assert (len(old.block_table), len(young.block_table)) == (3, 3)
    assert (old.num_computed, young.num_computed) == (12, 12)
    plan = sim.step()  # the older needs a fourth block
    assert plan.preempted == [young]
    assert plan.preemptions[0][1:] == (3, 12), "blocks and computed tokens that it lost"
    assert [c.sequence for c in plan.chunks] == [old]
    assert plan.limit_bound == "blocks"
    assert (young.num_computed, young.recompute_until, young.output_tokens) == (0, 12, 5)
    assert list(sim.queue.waiting) == [young]
    sim.run()
    again = next(r for plan in sim.plans[6:] for r in plan if r[0] == 1)
    assert again == (1, 0, 13, 0, False), "prompt and own tokens as one prompt"
    assert (sim.recomputed_tokens, sim.prefill_tokens, sim.decode_tokens) == (12, 16, 14)
    assert young.output_token_ids == old.output_token_ids == expected_output(8, 8)


def test_a_recompute_is_cut_by_the_budget_and_goes_on_where_it_was() -> None:
    sim = Simulation("chunked", blocks=6, chunk_tokens=5)
    sim.submit(8, 8)
    young = sim.submit(8, 8)
    while not sim.preemptions:
        sim.step()
    had = young.recompute_until
    emitted = young.output_tokens
    seen = len(sim.plans)
    while young.output_tokens == emitted:
        sim.step()
    rows = [r for plan in sim.plans[seen:] for r in plan if r[0] == 1]
    assert had > 5
    assert [r[2] for r in rows[:-1]] == [5] * (len(rows) - 1)
    assert sum(r[2] for r in rows) == had + 1
    sim.run()
    assert sim.recomputed_tokens == had * len(sim.preemptions)


def test_a_prompt_preempted_half_way_is_recompute_up_to_there_and_prefill_from_there() -> None:
    sim = Simulation("chunked", blocks=6, chunk_tokens=4)
    old = sim.submit(3, 17)
    while old.output_tokens < 6:
        sim.step()
    young = sim.submit(7, 1)
    sim.step()
    assert young.num_computed == 3
    sim.queue.preempt(young)
    assert sim.queue.can_admit()
    plan = sim.step()
    chunk = plan.chunks[-1]
    assert chunk.sequence is young
    assert (chunk.recomputed_tokens, chunk.prefill_tokens, chunk.decode_tokens) == (3, 0, 0)
    assert chunk.phase == "recompute"
    chunk = sim.step().chunks[-1]
    assert (chunk.recomputed_tokens, chunk.prefill_tokens, chunk.phase) == (0, 3, "prefill")


def test_who_was_preempted_is_admitted_before_who_came_later() -> None:
    sim = Simulation("continuous", max_batch=3, blocks=8)
    for _ in range(6):
        sim.submit(7, 12)
    sim.run()
    assert sim.preemptions
    assert sim.finished == sorted(sim.finished)
    first = list(dict.fromkeys(sim.admissions))
    assert first == sorted(first)


def test_admission_leaves_a_block_to_everybody_who_runs() -> None:
    """Seven blocks of 4: the second would fit, but push somebody out four tokens later."""
    sim = Simulation("continuous", blocks=7)
    sim.submit(15, 9)
    sim.step()
    sim.submit(8, 1)
    assert sim.queue.spare_blocks() == 1
    plan = sim.step()
    assert sim.queue.blocks.num_free == 3
    assert not plan.admitted
    assert plan.limit_bound == "blocks"
    sim.run()
    assert not sim.preemptions


def test_alone_a_request_uses_the_whole_cache() -> None:
    for name in SCHEDULERS:
        sim = Simulation(name, blocks=5, chunk_tokens=3)
        sim.submit(1, 19)
        sim.run()
        assert not sim.preemptions
        assert sim.finished == [0]


def test_chunks_of_a_long_prompt_are_not_taken_for_room() -> None:
    """It has one block so far and needs six: a second request does not fit beside it."""
    sim = Simulation("chunked", blocks=8, chunk_tokens=4)
    sim.submit(23, 1)
    sim.submit(4, 4)
    assert len(sim.step().chunks) == 1
    assert sim.queue.blocks.num_used == 1
    for _ in range(4):
        assert len(sim.step().chunks) == 1
    plan = sim.step()
    assert [(c.sequence.request_id, c.tokens) for c in plan.chunks] == [(0, 3)]
    assert sim.limits[-1] == "blocks"
    sim.run()
    assert not sim.preemptions


# --- fewer blocks while running ---


def test_a_static_cohort_loses_padding_first_then_its_youngest() -> None:
    sim = Simulation("static", max_batch=3, blocks=30, block_size=4)
    for output in (9, 1, 12):
        sim.submit(4, output)
    sim.step()
    sim.step()
    assert sim.queue.blocks.num_used == 6
    sim.offer(4)  # used ones stay until a table grows
    assert sim.queue.blocks.num_used == 6
    while not sim.preemptions:
        plan = sim.step()
    assert plan.preempted[0].request_id == 2, "the youngest"
    assert sim.live.keys() == {0, 2}
    assert [c.sequence.request_id for c in plan.chunks] == [0], "padding went before"
    sim.run()
    assert sorted(sim.finished) == [0, 1, 2]


def test_padding_never_pushes_a_member_out() -> None:
    """The finished row needs a block for the row it repeats; only then is it given up."""
    sim = Simulation("static", max_batch=2, blocks=20, block_size=4)
    sim.submit(4, 1)
    sim.submit(4, 7)
    sim.step()
    sim.offer(2)  # both hold one block, nothing is free, and both need a second
    sim.offer(3)
    sim.run()
    assert not sim.preemptions
    assert sim.finished == [0, 1]
    assert [row[0] for row in sim.plans[1]] == [1]


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_fewer_blocks_than_are_used_lose_nothing(name: str) -> None:
    sim = Simulation(name, max_batch=4, blocks=40, chunk_tokens=6)
    for _ in range(5):
        sim.submit(9, 14)
    sim.switch("continuous")
    for _ in range(4):
        sim.step()
    sim.switch(name)
    assert sim.offer(1) == 6, "what the longest can need"
    sim.run()
    assert sorted(sim.finished) == [0, 1, 2, 3, 4]
    assert sim.queue.blocks.num_free == 6


# --- the prefix cache ---


def test_a_later_prompt_starts_behind_its_cached_prefix() -> None:
    sim = Simulation("continuous", prefix_cache=True)
    system = tuple(range(10))
    first = sim.submit((*system, 50, 51), 2)
    sim.run()
    second = sim.submit((*system, 60, 61, 62), 1)
    sim.run()
    assert (first.cached_tokens, second.cached_tokens) == (0, 8)
    assert sim.plans[-1] == [(1, 8, 5, 0, False)]
    assert sim.prefix_hit_tokens == 8
    assert sim.prefill_tokens == 12 + 5


def test_the_next_turn_finds_the_answer_of_the_last() -> None:
    sim = Simulation("chunked", prefix_cache=True, chunk_tokens=3)
    first = sim.submit(range(6), 7)
    sim.run()
    second = sim.submit([*first.token_ids, 70, 71], 1)
    sim.run()
    assert first.token_ids[6:] == expected_output(range(6), 7)
    assert second.cached_tokens == 12, "all that was computed: the last token never was"


def test_hits_of_a_preempted_sequence_shorten_its_recompute_and_are_no_hits() -> None:
    sim = Simulation("continuous", prefix_cache=True, blocks=6)
    old, young = sim.submit(range(8), 8), sim.submit(range(20, 28), 8)
    for _ in range(6):
        sim.step()
    assert sim.preemptions == [1]
    sim.run()
    assert sim.prefix_hit_tokens == 0
    assert (old.cached_tokens, young.cached_tokens) == (0, 0)
    assert young.preemptions == 1
    assert 0 < sim.recomputed_tokens < young.recompute_until
    assert (sim.prefill_tokens, sim.decode_tokens) == (16, 14)


def test_one_admitted_again_with_all_it_had_cached_takes_its_token_from_the_budget() -> None:
    """It begins as a decode, which was not among those that the budget was cut for."""
    sim = Simulation("chunked", prefix_cache=True, chunk_tokens=1)
    sim.submit(range(40, 43), 20)
    young = sim.submit(range(6), 20)
    while young.num_computed < 8:
        sim.step()
    sim.queue.preempt(young)
    sim.submit(range(60, 65), 1)
    plan = sim.step()
    rows = [(c.sequence.request_id, c.start, c.tokens) for c in plan.chunks]
    assert [r for r in rows if r[0] == 1] == [(1, 8, 1)], "all that it had was cached"
    assert [r[0] for r in rows] == [0, 1], "one decode and one token more"
    assert plan.limit_bound == "tokens"


def test_a_cached_prefix_changes_nothing_about_the_padding_of_a_cohort() -> None:
    sim = Simulation("static", max_batch=2, prefix_cache=True)
    sim.submit(range(9), 1)
    sim.run()
    sim.submit(range(11), 1)
    sim.submit(range(40, 54), 1)
    sim.run()
    assert sim.plans[-1] == [(1, 8, 3, 3, False), (2, 0, 14, 0, False)]


def test_a_cancelled_half_prefilled_prompt_of_a_cohort_pads_with_one_row() -> None:
    sim = Simulation("chunked", chunk_tokens=4)
    sim.submit(2, 8)
    sim.submit(30, 2)
    sim.step()
    sim.switch("static")
    sim.cancel(1)
    assert [(c.sequence.request_id, c.tokens, c.padded) for c in sim.step().chunks] == [
        (0, 1, False),
        (1, 1, True),
    ]
    sim.run()
