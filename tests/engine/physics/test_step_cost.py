"""Counting by hand on a tiny model, and properties that any counting must have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.physics.cost import (
    ChunkWork,
    StepCost,
    StepTimes,
    bound,
    count_step,
    mbu,
    mfu,
    times,
)
from engine.physics.model_spec import ModelSpec

# One layer, hidden 4, MLP 6, 2 query heads and 1 KV head of 2, vocabulary 10.
TINY = ModelSpec("tiny", 1, 4, 6, 2, 1, 2, 10, True, 1000)
LINEAR = 4 * 4 + 2 * 4 * 2 + 4 * 4 + 3 * 4 * 6  # q, k and v, o, MLP: 120
HEAD = 10 * 4
NORMS = 3 * 4
ATTENTION = 4 * 2 * 2  # a query and one position: 2 products of 2 FLOPs over 2 heads of 2
KV = 2 * 1 * 1 * 2 * 4  # keys and values of one head of 2 in fp32, bytes: 16


def fp32(*chunks: ChunkWork) -> StepCost:
    return count_step(TINY, chunks, "fp32", "fp32")


def test_one_decode_row() -> None:
    cost = fp32(ChunkWork(tokens=1, start=5, sampled=1))
    assert cost.linear_flops == 2 * LINEAR == 240
    assert cost.attention_flops == ATTENTION * 6  # positions 0..5
    assert cost.head_flops == 2 * HEAD == 80
    assert cost.flops == 240 + 96 + 80
    assert cost.weight_bytes == 4 * (LINEAR + HEAD + NORMS + 4)  # 4: one embedding row
    assert (cost.kv_read_bytes, cost.kv_write_bytes) == (6 * KV, KV)
    assert (cost.padded_flops, cost.padded_bytes) == (0, 0)
    assert cost.intensity == pytest.approx(416 / (704 + 112))


def test_prefill_of_three_with_two_padding_rows() -> None:
    cost = fp32(ChunkWork(tokens=3, start=0, padded_tokens=2, sampled=1))
    assert cost.linear_flops == 5 * 240
    assert cost.attention_flops == ATTENTION * (1 + 2 + 3 + 4 + 5)
    assert cost.head_flops == 80
    assert cost.padded_flops == 2 * 240 + ATTENTION * (4 + 5)
    assert (cost.kv_read_bytes, cost.kv_write_bytes) == (5 * KV, 5 * KV)
    assert cost.padded_bytes == 2 * KV + 2 * KV
    assert cost.needed_flops == 3 * 240 + ATTENTION * 6 + 80


def test_padded_decode_row_is_padding_throughout() -> None:
    live = fp32(ChunkWork(1, 7, sampled=1))
    both = fp32(ChunkWork(1, 7, sampled=1), ChunkWork(1, 3, sampled=1, padded=True))
    assert both.padded_flops == 240 + ATTENTION * 4 + 80
    assert both.padded_bytes == 4 * KV + KV
    assert both.needed_flops == live.flops
    assert both.needed_bytes == live.bytes + 4 * 4  # its embedding row is not KV traffic


def test_unsampled_chunk_reads_no_head() -> None:
    cost = fp32(ChunkWork(tokens=2, start=0))
    assert cost.head_flops == 0
    assert cost.weight_bytes == 4 * (LINEAR + NORMS + 2 * 4)


def test_empty_step_costs_nothing() -> None:
    assert fp32() == fp32(ChunkWork(0, 9)) == StepCost(0, 0, 0, 0, 0, 0, 0, 0)
    assert fp32().intensity == 0


def test_dtypes_scale_their_own_part() -> None:
    chunk = [ChunkWork(1, 5, sampled=1)]
    mixed = count_step(TINY, chunk, "bf16", "int8")
    assert mixed.weight_bytes * 2 == fp32(*chunk).weight_bytes
    assert mixed.kv_read_bytes * 4 == fp32(*chunk).kv_read_bytes


def test_the_head_may_have_its_own_dtype() -> None:
    chunk = [ChunkWork(1, 5, sampled=1)]
    apart = count_step(TINY, chunk, "bf16", "bf16", "int8")
    assert apart.weight_bytes == 2 * (LINEAR + NORMS + 4) + 1 * HEAD
    same = count_step(TINY, chunk, "bf16", "bf16")
    assert same == count_step(TINY, chunk, "bf16", "bf16", "bf16")


def test_a_preempted_sequence_recomputes_and_then_decodes() -> None:
    """Seven of its eight tokens were computed before: what it needs is one decode."""
    again = fp32(ChunkWork(tokens=8, start=0, sampled=1, recomputed=7))
    decode = fp32(ChunkWork(tokens=1, start=7, sampled=1))
    assert again.recomputed_flops == 7 * 240 + ATTENTION * (1 + 2 + 3 + 4 + 5 + 6 + 7)
    assert again.needed_flops == decode.flops
    assert again.recomputed_bytes == 7 * KV  # written; the decode reads all eight in any case
    assert again.needed_bytes == decode.bytes + 7 * 4 * 4  # embedding rows are not KV traffic


def test_a_chunk_that_only_recomputes_needs_nothing_but_weights() -> None:
    cost = fp32(ChunkWork(tokens=3, start=2, recomputed=3))
    assert cost.needed_flops == 0
    assert cost.needed_bytes == cost.weight_bytes
    assert cost.recomputed_bytes == (5 + 3) * KV


sizes = st.integers(1, 400)
chunks = st.builds(
    ChunkWork,
    sizes,
    st.integers(0, 2000),
    st.integers(0, 50),
    st.integers(0, 1),
    st.booleans(),
    st.just(0),
)


def brute_force_attended(chunk: ChunkWork) -> int:
    rows = chunk.tokens + chunk.padded_tokens
    return sum(p + 1 for p in range(chunk.start, chunk.start + rows))


@given(st.lists(chunks, max_size=8))
def test_closed_form_equals_the_sum_over_queries(batch: list[ChunkWork]) -> None:
    expected = sum(brute_force_attended(chunk) for chunk in batch)
    assert fp32(*batch).attention_flops == ATTENTION * expected


@given(sizes, st.integers(0, 2000), st.data())
def test_a_chunk_split_anywhere_costs_the_same_flops(
    n: int, start: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, n))
    whole = fp32(ChunkWork(n, start))
    first, second = fp32(ChunkWork(cut, start)), fp32(ChunkWork(n - cut, start + cut))
    assert first.linear_flops + second.linear_flops == whole.linear_flops
    assert first.attention_flops + second.attention_flops == whole.attention_flops
    assert first.kv_write_bytes + second.kv_write_bytes == whole.kv_write_bytes
    assert first.kv_read_bytes + second.kv_read_bytes >= whole.kv_read_bytes


@given(st.lists(chunks, max_size=6), st.randoms())
def test_order_does_not_matter(batch: list[ChunkWork], rng: object) -> None:
    shuffled = list(batch)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fp32(*shuffled) == fp32(*batch)


@given(chunks, st.integers(0, 500))
def test_more_context_is_never_cheaper(chunk: ChunkWork, more: int) -> None:
    near, far = fp32(chunk), fp32(chunk._replace(start=chunk.start + more))
    assert far.bytes >= near.bytes
    assert far.flops >= near.flops


@given(st.lists(chunks, max_size=8))
def test_padding_is_a_part_of_what_ran(batch: list[ChunkWork]) -> None:
    cost = fp32(*batch)
    bare = [c._replace(padded_tokens=0) for c in batch if not c.padded]
    assert cost.needed_flops == fp32(*bare).flops
    assert 0 <= cost.padded_bytes <= cost.kv_bytes


@given(sizes, st.integers(0, 2000), st.integers(0, 1), st.data())
def test_recomputing_is_what_a_chunk_costs_beyond_its_fresh_tokens(
    n: int, start: int, sampled: int, data: st.DataObject
) -> None:
    again = data.draw(st.integers(0, n))
    cost = fp32(ChunkWork(n, start, sampled=sampled if again < n else 0, recomputed=again))
    fresh = fp32(ChunkWork(n - again, start + again, sampled=sampled if again < n else 0))
    assert cost.needed_flops == fresh.flops
    assert cost.kv_bytes - cost.recomputed_bytes == fresh.kv_bytes


def test_times_divide_by_the_peaks() -> None:
    cost = StepCost(60, 30, 10, 20, 700, 200, 100, 50)
    modelled = times(cost, peak_flops=50.0, peak_bandwidth=100.0)
    assert modelled == StepTimes(2.0, 10.0, 7.0, 3.0)
    assert modelled.floor_s == 10.0
    assert mfu(cost, 4.0, 50.0) == pytest.approx(80 / 200)
    assert mbu(cost, 12.5, 100.0) == pytest.approx(950 / 1250)


def test_unknown_peaks_stay_unknown() -> None:
    cost = fp32(ChunkWork(1, 1, sampled=1))
    modelled = times(cost, None, None)
    assert modelled == StepTimes(None, None, None, None)
    assert modelled.floor_s is None
    assert mfu(cost, 1.0, None) is None
    assert mbu(cost, 1.0, None) is None
    assert bound(modelled, 1.0, 0.1) is None


def test_bound_is_the_larger_term_and_overhead_needs_half_the_step() -> None:
    memory = StepTimes(1.0, 2.0, 1.5, 0.5)
    compute = replace(memory, t_compute_s=3.0)
    assert bound(memory, t_step_s=4.0, t_host_s=2.0) == "memory"
    assert bound(compute, t_step_s=4.0, t_host_s=1.0) == "compute"
    assert bound(compute, t_step_s=4.0, t_host_s=2.01) == "overhead"
