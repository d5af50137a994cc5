"""Paged attention and the experts' matmul: the rules beside the kernels.

That the kernels are right is `stepscope kernels check` (test_kernels_check.py), that they compile
well `stepscope kernels aot` (test_kernels_aot.py).
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.attention import aot, triton_impl
from kernels.attention.reference import paged_attention
from kernels.attention.splits import (
    BUSY_TILES,
    MAX_PARTS,
    MAX_TILES,
    RESIDENT,
    modelled_tiles,
    split,
)
from kernels.attention.tiles import decode_tiles, prefill_tiles
from kernels.checking.aot import Compiled, Job, compiled
from kernels.moe import reference as moe
from kernels.moe.tiles import blocks, matmul_tiles
from tests.kernels.oracle import attention_oracle, draw

SIZES = st.integers(1, 300)
ARCHS = ("sm_80", "sm_90", "sm_100", "gfx942")


# --- the number of splits ---


@given(SIZES, st.sampled_from([1, 2, 3, 8, 32]), st.integers(1, 2048), st.sampled_from([108, 132]))
def test_a_split_is_the_best_of_those_allowed(
    sequences: int, kv_heads: int, tiles: int, processors: int
) -> None:
    found = split(sequences, kv_heads, tiles, processors)
    assert 1 <= found.parts <= min(tiles, MAX_PARTS)
    assert math.ceil(tiles / found.parts) <= MAX_TILES
    times = {
        parts: modelled_tiles(sequences * kv_heads, tiles, parts, processors)
        for parts in range(math.ceil(tiles / MAX_TILES), min(tiles, MAX_PARTS) + 1)
    }
    best = min(times.values())
    assert times[found.parts] == best
    assert all(time > best for parts, time in times.items() if parts < found.parts)


@pytest.mark.parametrize("sequences", [1, 2, 4, 8, 12, 16, 24, 32])
def test_few_long_sequences_keep_most_of_a_gpu_busy(sequences: int) -> None:
    """8 KV heads, 32k tokens in tiles of 64, 132 processors: also at 12 sequences and above."""
    parts = split(sequences, 8, 512, 132).parts
    programs, slots = sequences * 8 * parts, 132 * RESIDENT
    assert programs / (math.ceil(programs / slots) * slots) > 0.85


def test_short_or_many_contexts_are_not_split() -> None:
    assert split(1, 8, 1, 132).parts == 1
    assert split(256, 8, 8, 132).parts == 1


def test_a_part_may_be_one_tile_only_where_the_sequences_do_not_fill_the_gpu() -> None:
    assert split(1, 8, 512, 132).least == 1
    assert split(256, 8, 512, 132).least == BUSY_TILES


# --- tiles ---


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("element_bytes", [2, 4])
@pytest.mark.parametrize("group", [1, 2, 3, 7, 16, 17, 32])
def test_a_tile_has_room_for_all_heads_of_a_kv_head(
    arch: str, element_bytes: int, group: int
) -> None:
    assert decode_tiles(arch, element_bytes, 128, group).rows >= max(group, 16)
    assert prefill_tiles(arch, element_bytes, 128, group).rows >= max(group, 16)


@pytest.mark.parametrize("arch", ["sm_86", "sm_89", "sm_120"])
def test_architectures_with_less_shared_memory_get_tiles_that_fit(arch: str) -> None:
    """99 KB a block (CUDA C++ Programming Guide, technical specifications): queries and stages."""
    for dim in (64, 128, 256):
        tiles = prefill_tiles(arch, 2, dim, 4)
        needed = (tiles.rows + 2 * (tiles.stages - 1) * tiles.keys) * dim * 2
        assert needed < 99 * 1024


@given(st.lists(st.integers(0, 70), min_size=1, max_size=8), st.sampled_from([1, 5, 21, 32]))
def test_every_query_has_one_block_in_a_grid_made_of_shapes_alone(
    rows: list[int], queries: int
) -> None:
    """Sequence s owns the blocks from starts[s] // queries + s on; see sequence_of."""
    starts = [sum(rows[:s]) for s in range(len(rows) + 1)]
    first = [starts[s] // queries + s for s in range(len(rows))]
    last = [at + math.ceil(count / queries) for at, count in zip(first, rows, strict=True)]
    assert all(end <= begin for end, begin in zip(last, first[1:], strict=False))
    assert max(last) <= sum(rows) // queries + len(rows)


# --- block ids one iteration early ---


def _changed(tmp_path: Path, old: str, new: str) -> ModuleType:
    """The kernels' own file with one text replaced everywhere, as a module."""
    text = Path(triton_impl.__file__).read_text()
    assert text.count(old) >= 1
    path = tmp_path / "changed_triton_impl.py"
    path.write_text(text.replace(old, new))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _decode_on_sm_90(kernels: ModuleType) -> Compiled:
    named = (s for s in aot.specs() if s.name.startswith("paged_decode split bf16, 32/8"))
    found = next(s for s in named if s.archs == ("sm_90",))
    return compiled(Job(replace(found, fn=lambda: kernels.decode_kernel), "sm_90"))


def test_ids_loaded_where_they_are_used_leave_keys_and_values_single_buffered(
    tmp_path: Path,
) -> None:
    early = "ids = block_ids(table, tokens + KEYS, end, BLOCK_SIZE)"
    late = _changed(tmp_path, early, "current = block_ids(table, tokens, end, BLOCK_SIZE)")
    assert _decode_on_sm_90(triton_impl).failure is None
    assert _decode_on_sm_90(late).failure == "loads of the loop are single-buffered"


# --- the references against others ---


def test_paged_attention_is_attention_over_the_rows_its_tables_name() -> None:
    block, rows, contexts = 4, (3, 1, 0, 5), (9, 6, 0, 5)
    cache, q = draw(40, 2, 2, 8, dtype=torch.float64), draw(9, 4, 8, dtype=torch.float64, seed=1)
    tables = torch.tensor([[7, 2, 9], [0, 4, -1], [-1, -1, -1], [5, 1, -1]])
    starts = torch.tensor([0, 3, 4, 4, 9])
    found = paged_attention(q, cache, tables, starts, torch.tensor(contexts), block)
    for s, (count, context) in enumerate(zip(rows, contexts, strict=True)):
        places = [int(tables[s, t // block]) * block + t % block for t in range(context)]
        own = slice(int(starts[s]), int(starts[s + 1]))
        expected = attention_oracle(q[own], cache[places, 0], cache[places, 1], context - count)
        torch.testing.assert_close(found[own].flatten(1), expected)


def test_router_by_hand() -> None:
    logits = torch.tensor([[0.0, 2.0, -1.0, 2.0], [3.0, -5.0, 1.0, 0.0]], dtype=torch.float64)
    weights, indices, places = moe.router(logits, 2, "sqrt_softplus", renormalise=False)
    assert indices.tolist() == [[1, 3], [0, 2]]  # of equal logits the lower index first
    assert places.tolist() == [[0, 2], [1, 3]]  # slot * rows + row
    expected = [[math.sqrt(math.log1p(math.exp(x))) for x in row] for row in ([2, 2], [3, 1])]
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    shares = moe.router(logits, 2, "softmax", renormalise=True)[0]
    torch.testing.assert_close(shares.sum(1), torch.ones(2, dtype=torch.float64))


def test_router_by_token_id_takes_experts_from_the_table_and_weights_from_the_logits() -> None:
    logits = torch.tensor([[5.0, 0.0, 1.0]], dtype=torch.float64)
    table = torch.tensor([[0, 1], [2, 1]])
    weights, indices, _ = moe.router(logits, 2, "softmax", True, torch.tensor([1]), table)
    assert indices.tolist() == [[2, 1]]
    share = math.e / (math.e + 1)
    torch.testing.assert_close(weights, torch.tensor([[share, 1 - share]], dtype=torch.float64))


def test_an_unknown_scoring_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="scoring is 'sigmoid', must be sqrt_softplus or softmax"):
        moe.router(torch.zeros(1, 4), 2, "sigmoid", renormalise=True)


def test_places_are_sorted_by_expert_and_keep_their_order() -> None:
    order, starts = moe.sort_by_expert(torch.tensor([[2, 0], [0, 2], [3, 0]]), experts=5)
    assert starts.tolist() == [0, 3, 3, 5, 6, 6]
    assert order.tolist() == [1, 2, 5, 0, 3, 4]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=40), st.sampled_from([16, 64, 128]))
def test_the_grid_has_a_block_for_every_begun_block_of_an_expert(
    counts: list[int], rows: int
) -> None:
    needed = sum(math.ceil(count / rows) for count in counts)
    assert needed <= blocks(sum(counts), len(counts), rows)


@pytest.mark.parametrize("arch", ARCHS)
def test_an_experts_tile_grows_with_its_share_of_the_rows(arch: str) -> None:
    each = [matmul_tiles(arch, 2, share * 8, 8).rows for share in (1, 16, 17, 64, 65, 1000)]
    assert each == [16, 16, 64, 64, 128, 128]
