"""Where blocks lie: one run for each table as long as there is room for it."""

from __future__ import annotations

from engine.block_manager import BlockManager
from tests.engine.test_block_manager import SIZE, prompt


def test_tables_that_grow_by_turns_stay_in_one_run_each() -> None:
    blocks = BlockManager(64, SIZE)
    for owner in range(4):
        blocks.open(owner, prompt(0, 4), expected_tokens=16 * SIZE)
    for tokens in range(1, 16 * SIZE + 1):
        for owner in range(4):
            assert blocks.grow(owner, tokens)
    for owner in range(4):
        table = blocks.table(owner)
        assert table == list(range(table[0], table[0] + 16))


def test_a_run_that_was_kept_is_taken_when_nothing_else_is_left() -> None:
    blocks = BlockManager(8, SIZE)
    blocks.open(0, prompt(0, 4), expected_tokens=6 * SIZE)
    blocks.grow(0, 1)
    blocks.open(1, prompt(0, 4), expected_tokens=7 * SIZE)
    assert blocks.grow(1, 7 * SIZE), "nothing was promised"
    assert blocks.num_free == 0
    assert not set(blocks.table(0)) & set(blocks.table(1))
    blocks.release(0)
    blocks.release(1)
    blocks.open(2, prompt(0, 4))
    assert blocks.grow(2, 8 * SIZE)
    assert blocks.table(2) == list(range(8)), "closed tables keep no runs"
