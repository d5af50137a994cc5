"""The block manager by hand: growing, sharing, eviction, fewer blocks, and what it reports."""

from __future__ import annotations

import random

import pytest

from engine.block_manager import BlockManager, IntegrityError
from engine.errors import UserError

SIZE = 4


def manager(blocks: int = 8, *, prefix_cache: bool = True) -> BlockManager:
    return BlockManager(blocks, SIZE, prefix_cache=prefix_cache)


def compute(blocks: BlockManager, owner: int, tokens: list[int]) -> int:
    """Open a table for all of the tokens and compute them; the tokens that were cached."""
    cached = blocks.open(owner, tokens)
    assert blocks.grow(owner, len(tokens))
    blocks.commit(owner, tokens, len(tokens))
    blocks.check_integrity()
    return cached


def prompt(first: int, tokens: int) -> list[int]:
    return list(range(first, first + tokens))


# --- growing ---


def test_a_table_gets_blocks_only_as_it_grows() -> None:
    blocks = manager()
    blocks.open(0, prompt(0, 30))
    assert blocks.num_used == 0
    held = []
    for tokens in (1, 4, 5, 3, 13):
        assert blocks.grow(0, tokens)
        held.append(len(blocks.table(0)))
    assert held == [1, 1, 2, 2, 4]
    assert (blocks.num_used, blocks.num_free) == (4, 4)


def test_a_table_that_cannot_grow_stays_as_it_is() -> None:
    blocks = manager(4)
    compute(blocks, 0, prompt(0, 8))
    compute(blocks, 1, prompt(50, 5))
    before = blocks.table(1)
    assert not blocks.can_grow(1, 9)
    assert not blocks.grow(1, 9)
    assert blocks.table(1) == before
    assert blocks.can_grow(1, 8)
    assert blocks.grow(1, 8), "its last block has room"
    blocks.release(0)
    assert blocks.grow(1, 9)
    blocks.check_integrity()


def test_what_can_be_opened_can_be_grown() -> None:
    blocks = manager(6)
    tokens = prompt(0, 13)
    compute(blocks, 0, tokens)
    assert not blocks.can_open(prompt(50, 5), 9), "3 blocks, 2 are free"
    assert blocks.can_open(prompt(50, 5), 8)
    assert not blocks.can_open(prompt(50, 5), 8, spare=1)
    assert blocks.can_open(tokens, 17, spare=0), "5 blocks, 3 of which the other table has"
    assert not blocks.can_open(tokens, 17, spare=1)
    blocks.release(0)
    assert blocks.num_free == 6, "cached blocks are free"
    assert blocks.can_open(tokens, 24)
    assert not blocks.can_open(tokens, 25), "a cached block that nobody holds costs a block too"
    assert blocks.open(1, tokens) == 12
    assert blocks.grow(1, 24)


# --- the prefix cache ---


def test_whole_blocks_are_shared_but_never_the_last_token() -> None:
    blocks = manager()
    tokens = prompt(0, 8)
    assert compute(blocks, 0, tokens) == 0
    assert blocks.match(tokens) == 4, "the last token must run to give logits"
    assert blocks.match([*tokens, 99]) == 8
    assert blocks.match(tokens[:7]) == 4
    assert blocks.match(tokens[:4]) == 0
    assert blocks.open(1, [*tokens, 99]) == 8
    assert blocks.table(1) == blocks.table(0)
    assert blocks.num_used == 2
    blocks.check_integrity()


def test_equal_blocks_after_other_tokens_are_not_shared() -> None:
    """A block's keys and values depend on all that came before: digests are chained."""
    blocks = manager()
    compute(blocks, 0, [1, 1, 1, 1, 5, 6, 7, 8])
    assert blocks.match([2, 2, 2, 2, 5, 6, 7, 8, 9]) == 0
    assert blocks.match([5, 6, 7, 8, 9]) == 0
    assert blocks.match([1, 1, 1, 1, 5, 6, 7, 0, 9]) == 4


def test_only_computed_tokens_can_be_shared() -> None:
    blocks = manager()
    tokens = prompt(0, 12)
    blocks.open(0, tokens)
    blocks.grow(0, 12)
    for computed, cached in ((3, 0), (4, 4), (7, 4), (11, 8)):
        blocks.commit(0, tokens, computed)
        assert blocks.match([*tokens, 99]) == cached


def test_contents_computed_twice_are_kept_once() -> None:
    blocks = manager()
    tokens = prompt(0, 9)
    for owner in (0, 1):
        blocks.open(owner, tokens)  # side by side, before either has computed anything
        blocks.grow(owner, 9)
    for owner in (0, 1):
        blocks.commit(owner, tokens, 9)
    assert blocks.num_used == 6
    first = blocks.table(0)
    blocks.release(1)
    assert blocks.num_cached == 0, "the copies are worth nothing"
    blocks.release(0)
    assert blocks.num_cached == 2
    assert blocks.open(2, tokens) == 8
    assert blocks.table(2) == first[:2]
    blocks.check_integrity()


def test_released_blocks_stay_until_room_is_needed_and_chains_lose_their_end_first() -> None:
    blocks = manager(4)
    tokens = prompt(0, 12)
    compute(blocks, 0, tokens)
    blocks.release(0)
    assert (blocks.num_used, blocks.num_cached, blocks.num_free) == (0, 3, 4)
    compute(blocks, 1, prompt(50, 4))
    assert blocks.match([*tokens, 99]) == 12, "there was a block that held nothing"
    assert blocks.evictions == 0
    compute(blocks, 2, prompt(70, 4))
    assert blocks.match([*tokens, 99]) == 8
    assert blocks.evictions == 1
    blocks.drain()
    assert blocks.evictions == 0


def test_the_least_recently_used_goes_first() -> None:
    blocks = manager(3)
    old, new = prompt(0, 5), prompt(50, 5)
    for owner, tokens in enumerate((old, new)):
        compute(blocks, owner, tokens[:4])
        blocks.release(owner)
    blocks.open(2, old)
    blocks.release(2)  # used again: now the newer one
    compute(blocks, 3, prompt(70, 8))
    assert (blocks.match(old), blocks.match(new)) == (4, 0)


def test_a_shared_block_is_free_only_after_its_last_holder() -> None:
    blocks = manager(3)
    tokens = prompt(0, 9)
    compute(blocks, 0, tokens[:8])
    blocks.open(1, tokens)
    blocks.release(0)
    assert (blocks.num_used, blocks.num_cached) == (2, 0)
    blocks.open(2, prompt(50, 8))
    assert not blocks.grow(2, 8), "what another holds is never evicted"
    assert blocks.grow(2, 4)
    blocks.check_integrity()


def test_switching_the_cache_off_forgets_and_on_starts_with_those_who_run() -> None:
    blocks = manager()
    tokens = prompt(0, 9)
    compute(blocks, 0, tokens)
    compute(blocks, 1, prompt(50, 8))
    blocks.release(1)
    blocks.set_prefix_cache(False)
    blocks.check_integrity()
    assert (blocks.num_cached, blocks.match(tokens), blocks.evictions) == (0, 0, 0)
    blocks.commit(0, tokens, 9)
    assert blocks.open(2, tokens) == 0
    blocks.set_prefix_cache(True)
    assert blocks.match(tokens) == 0
    blocks.commit(0, tokens, 9)
    assert blocks.match(tokens) == 8
    blocks.check_integrity()


def test_blocks_shared_when_the_cache_is_switched_off_stay_shared() -> None:
    blocks = manager()
    tokens = prompt(0, 9)
    compute(blocks, 0, tokens)
    blocks.open(1, tokens)
    blocks.set_prefix_cache(False)
    blocks.check_integrity()
    blocks.release(0)
    assert blocks.num_used == 2
    blocks.release(1)
    assert (blocks.num_used, blocks.num_free) == (0, 8)
    blocks.check_integrity()


# --- fewer and more blocks ---


def test_offering_fewer_evicts_at_once_and_waits_for_the_used() -> None:
    blocks = manager(8)
    compute(blocks, 0, prompt(0, 12))
    compute(blocks, 1, prompt(50, 12))
    blocks.release(1)
    blocks.resize(5)
    assert (blocks.num_used, blocks.num_cached, blocks.num_free) == (3, 2, 2)
    blocks.resize(2)
    assert (blocks.num_used, blocks.num_cached, blocks.num_free) == (3, 0, -1)
    blocks.check_integrity()
    assert blocks.grow(0, 12), "what it has it keeps"
    assert not blocks.grow(0, 13)
    assert not blocks.can_open(prompt(70, 1), 1)
    assert blocks.open(2, prompt(70, 1)) == 0, "an empty table needs nothing"
    blocks.release(2)
    blocks.release(0)
    assert (blocks.num_used, blocks.num_cached, blocks.num_free) == (0, 2, 2)
    blocks.resize(8)
    blocks.open(3, prompt(90, 4))
    assert blocks.grow(3, 8 * SIZE)
    blocks.check_integrity()


@pytest.mark.parametrize("offer", [0, -1, 9])
def test_an_impossible_number_of_blocks_is_refused(offer: int) -> None:
    blocks = manager(8)
    with pytest.raises(UserError, match=f"{offer} KV blocks: use 1 to 8"):
        blocks.resize(offer)
    assert blocks.num_blocks == 8


def test_a_cache_without_blocks_is_refused() -> None:
    with pytest.raises(UserError, match="use 1 or more"):
        BlockManager(0, 16)


# --- reports ---


def test_changes_are_reported_once_as_they_are_now() -> None:
    blocks = manager(4)
    tokens = prompt(0, 5)
    compute(blocks, 7, tokens)
    first, second = blocks.table(7)
    assert blocks.drain() == [(first, "used", 7, 1, 0), (second, "used", 7, 1, 1)]
    assert blocks.drain() == []
    blocks.open(8, tokens)
    assert blocks.drain() == [(first, "used", 7, 2, 0)]
    blocks.release(7)
    assert sorted(blocks.drain()) == [
        (first, "used", 8, 1, 0),
        (second, "free", None, 0, None),
    ]
    blocks.release(8)
    assert blocks.drain() == [(first, "cached", None, 0, 0)]
    blocks.open(9, prompt(50, 1))
    blocks.grow(9, 16)
    assert (first, "used", 9, 1, 0) in blocks.drain()


# --- integrity ---


def test_a_second_table_for_one_owner_is_a_bug() -> None:
    blocks = manager()
    blocks.open(0, [1])
    with pytest.raises(IntegrityError, match="already has a table"):
        blocks.open(0, [1])


def test_a_double_owner_is_found() -> None:
    blocks = manager()
    compute(blocks, 0, prompt(0, 4))
    compute(blocks, 1, prompt(50, 4))
    blocks._tables[1] = blocks._tables[0]
    with pytest.raises(IntegrityError, match="in the tables of"):
        blocks.check_integrity()


def test_a_leak_is_found() -> None:
    blocks = manager()
    compute(blocks, 0, prompt(0, 4))
    del blocks._tables[0]
    with pytest.raises(IntegrityError):
        blocks.check_integrity()


def test_a_cached_block_that_a_table_holds_is_found() -> None:
    blocks = manager()
    compute(blocks, 0, prompt(0, 4))
    blocks._cached[blocks.table(0)[0]] = None
    with pytest.raises(IntegrityError, match="cached and should not be"):
        blocks.check_integrity()


@pytest.mark.parametrize("seed", range(3))
def test_random_operations_keep_the_books(seed: int) -> None:
    """Prompts of two words over a tiny cache: shared, evicted, shrunk, switched all the time."""
    rng, blocks = random.Random(seed), manager(11)
    tables: dict[int, list[int]] = {}
    for owner in range(700):
        tokens = rng.choices((1, 2), weights=(8, 1), k=rng.randint(1, 30))
        if blocks.can_open(tokens, len(tokens), spare=rng.randint(0, 2)):
            blocks.open(owner, tokens, rng.randint(0, 50))
            assert blocks.grow(owner, len(tokens))
            tables[owner] = tokens
        for other in rng.sample(sorted(tables), k=len(tables) // 2):
            tables[other].append(rng.choice((1, 2)))
            if not blocks.can_grow(other, len(tables[other])):
                assert not blocks.grow(other, len(tables[other]))
                tables[other].pop()
                continue
            assert blocks.grow(other, len(tables[other]))
            blocks.commit(other, tables[other], len(tables[other]) - 1)
        while tables and (blocks.num_free < 2 or rng.random() < 0.3):
            leaving = rng.choice(sorted(tables))
            del tables[leaving]
            blocks.release(leaving)
        if rng.random() < 0.05:
            blocks.resize(rng.randint(1, 11))
        if rng.random() < 0.05:
            blocks.set_prefix_cache(rng.random() < 0.7)
        blocks.check_integrity()
    for owner in tables:
        blocks.release(owner)
    assert blocks.num_used == 0
