"""Attention over the paged cache that is read in place, against float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernels.attention.cache_layout import PAGE_TOKENS
from tests.kernels.native import Pages, attention_of
from tests.kernels.oracle import assert_close, attention_oracle, draw

CONTEXTS = (1, 15, 16, 17, 255, 256, 257, 700)
LEFT_BEHIND = 1e4  # past its context a sequence's last page holds what others left in it
DTYPES = pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])


class Case:
    """K, V [context, kv_heads, dim] in scattered pages of a cache that is NaN elsewhere."""

    def __init__(
        self, context: int, kv_heads: int, dim: int, bf16: bool, seed: int = 0, spread: int = 2
    ) -> None:
        self.bf16, self.dim = bf16, dim
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.k, self.v = (
            draw(context, kv_heads, dim, seed=seed + s).to(self.dtype) for s in (1, 2)
        )
        self.kv_heads, self.seed = kv_heads, seed
        count = -(-context // PAGE_TOKENS)
        order = torch.randperm(spread * count, generator=torch.Generator().manual_seed(seed))
        self.lay_out(order[:count].contiguous(), spread * count)

    def lay_out(self, table: Tensor, pages: int) -> None:
        self.table = table
        self.pages = Pages(pages, self.kv_heads, self.dim, self.bf16)
        fill = len(table) * PAGE_TOKENS - len(self.k)
        k, v = (torch.cat([x, torch.full_like(x[:1], LEFT_BEHIND).expand(fill, -1, -1)])
                for x in (self.k, self.v))  # fmt: skip
        self.pages.fill(k, v, table)

    def queries(self, rows: int, group: int) -> Tensor:
        """[rows, heads * dim], scaled."""
        q = draw(rows, group * self.kv_heads * self.dim, seed=self.seed + 3)
        return (q / math.sqrt(self.dim)).to(self.dtype)

    def expected(self, q: Tensor, start: int) -> Tensor:
        unscaled = q.double().view(len(q), -1, self.dim) * math.sqrt(self.dim)
        return attention_oracle(unscaled, self.k, self.v, start)

    def check(self, found: Tensor, q: Tensor, start: int) -> None:
        assert_close(found, self.expected(q, start), self.dim, self.dtype)


@DTYPES
@pytest.mark.parametrize("dim", [32, 64, 128])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_decodes_and_chunks(bf16: bool, group: int, dim: int) -> None:
    """The last row alone, and the last rows as a chunk; a group of 8 takes them in blocks of 12."""
    for context in CONTEXTS:
        case = Case(context, 2, dim, bf16)
        for rows in {1, min(context, 14)}:
            q, start = case.queries(rows, group), context - rows
            case.check(attention_of(q, case.pages, case.table, start), q, start)


@DTYPES
def test_a_whole_prompt(bf16: bool) -> None:
    case = Case(530, 1, 64, bf16)
    q = case.queries(530, 3)
    found = attention_of(q, case.pages, case.table, 0)
    case.check(found, q, 0)
    rounded = attention_of(q, case.pages, case.table, 0, torch.bfloat16)
    assert torch.equal(rounded, found.bfloat16())


@DTYPES
@pytest.mark.parametrize("dim", [32, 64, 128])
def test_a_query_finds_exactly_its_key(bf16: bool, dim: int) -> None:
    """Keys of +-1 and a strong query: all of the weight falls on one key, whose value comes out.

    So a wrong page, token, pair or head shows in full, in bfloat16 as well.
    """
    context, heads = 700, 2
    case = Case(context, heads, dim, bf16)
    case.k = torch.where(case.k.float() > 0, 1.0, -1.0).to(case.dtype)
    case.lay_out(case.table, 2 * len(case.table))
    own = case.k.repeat_interleave(3, 1)  # three queries: for itself, for the first, for one before
    own[:, 1::3], own[2:, 2::3] = case.k[:1], case.k[: context - 2]
    values = case.v.repeat_interleave(3, 1)
    values[:, 1::3], values[2:, 2::3] = case.v[:1], case.v[: context - 2]
    found = attention_of(16 * own.reshape(context, -1), case.pages, case.table, 0)
    assert torch.equal(found, values.reshape(context, -1).float())


@DTYPES
def test_the_future_is_not_seen(bf16: bool) -> None:
    """Later keys of the same chunk are there, and twice as strong as any that may be seen."""
    case = Case(300, 2, 64, bf16)
    q = case.queries(150, 3)
    found = attention_of(q[:100], case.pages, case.table, 150)
    case.k[250:] *= 50
    case.v[250:] = 1e3
    case.lay_out(case.table, 2 * len(case.table))
    assert torch.equal(attention_of(q, case.pages, case.table, 150)[:100], found)


@DTYPES
@pytest.mark.parametrize("group", [1, 3, 8])
def test_the_same_bits_in_any_chunk_and_in_any_pages(bf16: bool, group: int) -> None:
    rows, start = 130, 200  # across the border of a stretch of 256 keys
    case = Case(start + rows, 2, 64, bf16)
    q = case.queries(rows, group)
    whole = attention_of(q, case.pages, case.table, start)
    for size in (1, 7, 16, 33, 96):
        parts = [
            attention_of(q[at : at + size].contiguous(), case.pages, case.table, start + at)
            for at in range(0, rows, size)
        ]
        assert torch.equal(torch.cat(parts), whole), f"chunks of {size}"
    case.lay_out(torch.arange(len(case.table)), len(case.table))
    assert torch.equal(attention_of(q, case.pages, case.table, start), whole)


@DTYPES
def test_scores_of_any_size(bf16: bool) -> None:
    """The running maximum: keys that grow along the context, and queries far from zero."""
    case = Case(600, 1, 64, bf16)
    case.k = (case.k.float() * torch.linspace(0.01, 30, 600)[:, None, None]).to(case.dtype)
    case.lay_out(case.table, 2 * len(case.table))
    q = case.queries(9, 4) * 8
    found = attention_of(q, case.pages, case.table, 591)
    # Scores are up to about 1000, and so is what float32 rounds of them; bfloat16 rounds weights.
    reduced = 64 if bf16 else 64 * 1000**2
    assert_close(found, case.expected(q, 591), reduced, case.dtype)


def _shift_a_page(case: Case, q: Tensor, start: int) -> Tensor:
    table = case.table.clone()
    table[3] = case.table[4]
    return attention_of(q, case.pages, table, start)


def _start_too_early(case: Case, q: Tensor, start: int) -> Tensor:
    return attention_of(q, case.pages, case.table, start - 1)


def _start_too_late(case: Case, q: Tensor, start: int) -> Tensor:
    return attention_of(q, case.pages, case.table, start + 1)


def _swap_heads(case: Case, q: Tensor, start: int) -> Tensor:
    swapped = q.view(len(q), 2, -1).flip(1).reshape(q.shape)
    return attention_of(swapped, case.pages, case.table, start)


@DTYPES
@pytest.mark.parametrize("plant", [_shift_a_page, _start_too_early, _start_too_late, _swap_heads])
def test_planted_errors_are_caught(bf16: bool, plant: object) -> None:
    case = Case(90, 2, 64, bf16)
    q, start = case.queries(5, 3), 85
    case.check(attention_of(q, case.pages, case.table, start), q, start)
    with pytest.raises(AssertionError, match="error"):
        case.check(plant(case, q, start), q, start)  # type: ignore[operator]
