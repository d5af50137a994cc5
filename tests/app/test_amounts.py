"""Token budget and KV blocks as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.amounts import (
    AmountError,
    blocks_choices,
    blocks_text,
    budget_choices,
    budget_text,
    parse_blocks,
    parse_budget,
)


@given(st.integers(1, 65536))
def test_a_budget_reads_back_what_it_shows(tokens: int) -> None:
    assert parse_budget(budget_text(tokens)) == tokens
    assert budget_text(tokens) in budget_choices(tokens)


@given(st.integers(1, 10**7), st.data())
def test_blocks_read_back_what_they_show(capacity: int, data: st.DataObject) -> None:
    blocks = data.draw(st.integers(1, capacity))
    assert parse_blocks(blocks_text(blocks), capacity) == blocks
    choices = blocks_choices(capacity, blocks)
    assert blocks_text(blocks) in choices
    assert choices[0] == blocks_text(capacity)
    offered = [parse_blocks(choice, capacity) for choice in choices]
    assert offered == sorted(set(offered), reverse=True)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("64", 64), ("budget 64", 64), (" 1,024 tokens ", 1024), ("Budget 7 token", 7)],
)
def test_budgets_as_people_write_them(text: str, tokens: int) -> None:
    assert parse_budget(text) == tokens


@pytest.mark.parametrize(
    ("text", "blocks"),
    [("512", 512), ("KV 512", 512), ("1,000 blocks", 1000), ("25%", 250), ("12.5 %", 125)],
)
def test_blocks_as_people_write_them(text: str, blocks: int) -> None:
    assert parse_blocks(text, 1000) == blocks


@pytest.mark.parametrize("text", ["", "lots", "0", "-5", "1.5", ",", "64 blocks"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(AmountError, match="is no token budget: write a number of tokens"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["", "most", "0", "1,001", "0%", "101%", "0.01%", "64 tokens"])
def test_what_is_no_number_of_blocks(text: str) -> None:
    with pytest.raises(AmountError, match="write 1 to 1,000, or a share such as 25%"):
        parse_blocks(text, 1000)
