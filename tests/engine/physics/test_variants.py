"""Experts, latent attention and windows: counted by hand, and against the sum over every query."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.physics.amounts import variant_amounts
from engine.physics.cost import ChunkWork, StepCost, count_step
from engine.physics.model_spec import ModelSpec
from engine.physics.roofline import DecodeModel
from engine.physics.shapes import MLA, MoE, Window

# Three layers, hidden 4, 2 query heads and 1 KV head of 2, vocabulary 10.
TINY = ModelSpec("tiny", 3, 4, 6, 2, 1, 2, 10, True, 1000)
ATTENTION = 4 * 4 + 2 * 4 * 2 + 4 * 4  # q, k and v, o of one layer: 48
EXPERTS = MoE(experts=4, experts_per_token=2, expert_intermediate=5, shared_intermediate=3)
MIXED = replace(TINY, moe=replace(EXPERTS, dense_layers=1))
LATENT = replace(TINY, mla=MLA(q_rank=3, kv_rank=5, nope_dim=2, rope_dim=1, v_dim=4))
WINDOW = replace(TINY, window=Window(tokens=4, layers=2))


def fp32(spec: ModelSpec, *chunks: ChunkWork) -> StepCost:
    return count_step(spec, chunks, "fp32", "fp32")


def test_experts_by_hand() -> None:
    expert, router, shared, dense = 3 * 4 * 5, 4 * 4, 3 * 4 * 3, 3 * 4 * 6
    assert (MIXED.expert_params, MIXED.router_params, MIXED.moe_layers) == (expert, 2 * router, 2)
    always = 3 * ATTENTION + dense + 2 * (router + shared)
    assert MIXED.shared_linear_params == always
    assert MIXED.linear_params == always + 2 * 4 * expert
    assert MIXED.active_linear_params == always + 2 * 2 * expert
    assert MIXED.total_params - MIXED.active_params == 2 * 2 * expert

    cost = fp32(MIXED, ChunkWork(3, 0, sampled=1))
    touched = 4 * (1 - (1 - 2 / 4) ** 3)  # 3.5 of 4 experts
    assert cost.linear_flops == 3 * 2 * (always + 2 * 2 * expert)
    read = always + 2 * touched * expert + MIXED.norm_params + 3 * 4 + 40
    assert cost.weight_bytes == round(4 * read)


def test_one_row_reads_the_experts_it_picks_and_many_rows_all() -> None:
    one = fp32(MIXED, ChunkWork(1, 0))
    assert one.weight_bytes == 4 * (MIXED.active_linear_params + MIXED.norm_params + 4)
    many = fp32(MIXED, ChunkWork(200, 0))
    assert many.weight_bytes == 4 * (MIXED.linear_params + MIXED.norm_params + 200 * 4)


@pytest.mark.parametrize(("rows", "share"), [(1, 8 / 128), (16, 0.644), (64, 0.984)])
def test_touched_experts(rows: int, share: float) -> None:
    """1 − (1 − 1/16)^B of Qwen3-30B-A3B's 128 experts."""
    assert MoE(128, 8, 768).touched(rows) / 128 == pytest.approx(share, abs=5e-4)


def test_experts_that_only_padding_touched_are_not_needed() -> None:
    padded = fp32(MIXED, ChunkWork(1, 7, sampled=1), ChunkWork(1, 3, sampled=1, padded=True))
    live = fp32(MIXED, ChunkWork(1, 7, sampled=1))
    assert padded.weight_bytes - live.weight_bytes == 4 * (2 * 1 * 3 * 4 * 5 + 4)
    assert padded.needed_bytes == live.bytes + 4 * 4  # its embedding row is not needed either
    again = fp32(MIXED, ChunkWork(2, 6, sampled=1, recomputed=1))
    assert again.needed_bytes == fp32(MIXED, ChunkWork(1, 7, sampled=1)).bytes + 4 * 4


# One layer of LATENT: q 4·3 + 3·2·(2+1), latent 4·(5+1), expansion 5·2·(2+4), o 2·4·4.
LATENT_LAYER = 12 + 18 + 24 + 60 + 32


def test_latent_attention_by_hand() -> None:
    mlp = 3 * 4 * 6
    assert LATENT.linear_params == 3 * (LATENT_LAYER + mlp)
    assert LATENT.norm_params == 7 * 4 + 3 * (3 + 5)
    assert LATENT.kv_bytes_per_token(4) == 3 * (5 + 1) * 4
    direct = replace(LATENT, mla=replace(LATENT.mla, q_rank=None))
    assert LATENT.linear_params - direct.linear_params == 3 * (12 + 18 - 4 * 2 * 3)


def test_a_latent_decode_is_absorbed() -> None:
    cost = fp32(LATENT, ChunkWork(1, 9, sampled=1))
    assert cost.linear_flops == 2 * LATENT.linear_params  # the expansion's weights once
    assert cost.attention_flops == 3 * 10 * 2 * (2 * (5 + 1) + 2 * 5)  # scores, values; 2 heads
    assert (cost.kv_read_bytes, cost.kv_write_bytes) == (10 * 72, 72)


def test_a_latent_prefill_is_expanded() -> None:
    cost = fp32(LATENT, ChunkWork(4, 0, sampled=1))
    assert cost.linear_flops == 4 * 2 * LATENT.linear_params
    assert cost.attention_flops == 3 * (1 + 2 + 3 + 4) * 2 * (2 * (2 + 1) + 2 * 4)
    later = fp32(LATENT, ChunkWork(4, 6))
    assert later.linear_flops == cost.linear_flops + 6 * 2 * 3 * 60  # expands what lies before it
    assert later.kv_read_bytes == 10 * 72


def test_a_latent_token_with_padding_behind_it_is_a_longer_chunk() -> None:
    cost = fp32(LATENT, ChunkWork(1, 3, padded_tokens=2, sampled=1))
    assert cost.linear_flops == 2 * (3 * LATENT.linear_params + 3 * 3 * 60)
    assert cost.attention_flops == 3 * (4 + 5 + 6) * 28
    assert cost.kv_read_bytes == 6 * 72


def test_windows_by_hand() -> None:
    near = fp32(WINDOW, ChunkWork(1, 2, sampled=1))
    assert near == fp32(TINY, ChunkWork(1, 2, sampled=1))
    far = fp32(WINDOW, ChunkWork(1, 9, sampled=1))
    assert far.attention_flops == 4 * 2 * 2 * (1 * 10 + 2 * 4)
    assert far.kv_read_bytes == 2 * 2 * 4 * (1 * 10 + 2 * 4)  # keys and values of 2 in fp32
    assert far.kv_write_bytes == 3 * 2 * 2 * 4
    prompt = fp32(WINDOW, ChunkWork(6, 2))
    assert prompt.attention_flops == 16 * ((3 + 4 + 5 + 6 + 7 + 8) + 2 * (3 + 4 * 5))
    assert prompt.kv_read_bytes == 16 * (8 + 2 * 8)
    later = fp32(WINDOW, ChunkWork(6, 5))
    assert later.kv_read_bytes == 16 * (11 + 2 * (6 + 3))


def test_a_shape_that_no_model_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="dense or windowed, but it has 3"):
        replace(TINY, window=Window(8, 4))
    with pytest.raises(ValueError, match="dense or windowed, but it has 3"):
        replace(TINY, moe=replace(EXPERTS, dense_layers=4))
    with pytest.raises(ValueError, match="latent attention with a window"):
        replace(LATENT, window=Window(8, 1))
    with pytest.raises(ValueError, match="tokens is 0, use 1 or more"):
        Window(0, 1)
    with pytest.raises(ValueError, match="use 0 or more"):
        MoE(4, 2, 5, shared_intermediate=-1)
    with pytest.raises(ValueError, match="q_rank is 0"):
        MLA(0, 5, 2, 1, 4)
    with pytest.raises(ValueError, match="tiny has plain attention"):
        variant_amounts(TINY, [], [])


@pytest.mark.parametrize("spec", [TINY, MIXED, LATENT, WINDOW])
def test_a_spec_comes_back_from_a_runs_config(spec: ModelSpec) -> None:
    assert ModelSpec.from_dict(asdict(spec)) == spec


sizes = st.integers(1, 60)
starts = st.integers(0, 80)
padding = st.integers(0, 12)
samples = st.integers(0, 1)
chunks = st.builds(ChunkWork, sizes, starts, padding, samples, st.booleans(), st.just(0))
batches = st.lists(chunks, max_size=6)
SPECS = st.sampled_from([TINY, MIXED, LATENT, WINDOW])


@given(batches)
def test_a_window_that_shows_everything_is_plain_attention(batch: list[ChunkWork]) -> None:
    wide = replace(TINY, window=Window(1000, 2))
    assert fp32(wide, *batch) == fp32(TINY, *batch)


@given(sizes, starts, st.integers(1, 50))
def test_windows_are_the_sum_over_queries(rows: int, start: int, tokens: int) -> None:
    cost = fp32(replace(TINY, window=Window(tokens, 3)), ChunkWork(rows, start))
    queries = range(start, start + rows)
    assert cost.attention_flops == 48 // 3 * 3 * sum(min(p + 1, tokens) for p in queries)
    read = {p for q in queries for p in range(max(0, q + 1 - tokens), q + 1)}
    assert cost.kv_read_bytes == 48 * len(read)


@given(SPECS, batches, st.lists(starts, max_size=6))
def test_decodes_given_as_positions_cost_what_their_chunks_cost(
    spec: ModelSpec, batch: list[ChunkWork], positions: list[int]
) -> None:
    spelled = [*batch, *(ChunkWork(1, start, sampled=1) for start in positions)]
    short = count_step(spec, batch, "bf16", "fp8", "int8", decode_starts=positions)
    assert short == count_step(spec, spelled, "bf16", "fp8", "int8")
    assert all(type(value) is int for value in short)


@given(SPECS, batches)
def test_padding_is_a_part_of_what_ran(spec: ModelSpec, batch: list[ChunkWork]) -> None:
    """Of chunks that keep their form of latent attention without their padding."""
    kept = [c for c in batch if c.padded or not c.padded_tokens or c.tokens > 1]
    cost = fp32(spec, *kept)
    bare = fp32(spec, *(c._replace(padded_tokens=0) for c in kept if not c.padded))
    assert cost.needed_flops == bare.flops
    assert cost.kv_bytes >= bare.kv_bytes
    assert cost.needed_bytes >= bare.bytes - 1


@given(SPECS, sizes, starts, st.data())
def test_recomputing_is_what_a_chunk_costs_beyond_its_fresh_tokens(
    spec: ModelSpec, n: int, start: int, data: st.DataObject
) -> None:
    again = data.draw(st.integers(0, max(0, n - 2)))  # two fresh ones stay in the expanded form
    cost = fp32(spec, ChunkWork(n, start, sampled=1, recomputed=again))
    fresh = fp32(spec, ChunkWork(n - again, start + again, sampled=1))
    assert cost.needed_flops == fresh.flops
    assert cost.needed_bytes == pytest.approx(fresh.bytes + again * 16, abs=3)


@given(SPECS, chunks, st.integers(0, 200))
def test_more_context_is_never_cheaper(spec: ModelSpec, chunk: ChunkWork, more: int) -> None:
    near, far = fp32(spec, chunk), fp32(spec, chunk._replace(start=chunk.start + more))
    assert far.flops >= near.flops
    assert far.bytes >= near.bytes


def test_the_decode_model_of_each_kind() -> None:
    experts = DecodeModel.of(MIXED, "bf16", "bf16")
    assert (experts.total_params, experts.active_params) == (
        MIXED.total_params,
        MIXED.active_params,
    )
    latent = DecodeModel.of(LATENT, "bf16", "bf16")
    step = count_step(LATENT, [ChunkWork(1, 99, sampled=1)], "bf16", "bf16")
    assert latent.sequence_flops(100) - 2 * LATENT.active_params == step.attention_flops
    assert latent.sequence_bytes(100) == step.kv_read_bytes
    window = DecodeModel.of(WINDOW, "bf16", "bf16")
    step = count_step(WINDOW, [ChunkWork(1, 99, sampled=1)], "bf16", "bf16")
    assert window.sequence_bytes(100) == pytest.approx(step.kv_read_bytes)
    attention = window.sequence_flops(100) - 2 * WINDOW.active_params
    assert attention == pytest.approx(step.attention_flops)
