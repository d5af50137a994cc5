"""Roofline and sizing beyond the golden values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.physics import roofline as r
from engine.physics import sizing
from engine.physics.model_spec import ModelSpec
from engine.physics.shapes import MoE

SMOLLM2 = ModelSpec("smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, True, 8192)
LLAMA3_8B = ModelSpec("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, False, 131072)
H100 = {"peak_flops": 989e12, "bandwidth": 3.35e12}


def test_roof_is_the_slope_below_the_ridge_and_flat_above() -> None:
    assert r.attainable_flops(10, **H100) == 33.5e12
    assert r.attainable_flops(r.ridge_intensity(**H100), **H100) == pytest.approx(989e12)
    assert r.attainable_flops(1000, **H100) == 989e12


def test_kv_caps_the_intensity_of_the_default_model_at_512_tokens() -> None:
    # (2 · 134.5M + 4 · 9 · 64 · 30 · 512) / (23,040 · 512), the 25.8 of views.md
    model = r.DecodeModel.of(SMOLLM2, "bf16", "bf16")
    assert r.intensity_asymptote(model, 512) == pytest.approx(25.8, rel=0.002)
    assert r.decode_intensity(model, 1e9, 512) == pytest.approx(25.8, rel=0.002)
    assert r.intensity_asymptote(model, 0) == math.inf


def test_an_8b_on_an_h100_never_crosses_from_512_tokens_on() -> None:
    model = r.DecodeModel.of(LLAMA3_8B, "bf16", "bf16")
    none = r.crossover_batch_with_kv(model, 512, **H100)
    assert none.batch is None
    assert "KV faster than compute" in str(none.reason)
    assert "512" in str(none.reason)
    some = r.crossover_batch_with_kv(model, 256, **H100)
    assert some.batch is not None
    assert some.batch > r.crossover_batch(model, **H100)


@given(st.floats(0, 300), st.floats(0.5, 4))
def test_at_the_crossover_with_kv_both_times_are_equal(context: float, width: float) -> None:
    model = r.DecodeModel(8.03e9, 8.03e9, width, 131072, 524288)
    batch = r.crossover_batch_with_kv(model, context, **H100).batch
    assert batch is not None
    ratio = r.memory_to_compute_ratio(model, batch, context, **H100)
    assert ratio == pytest.approx(1)


@given(st.integers(1, 4096), st.integers(0, 65536))
def test_memory_over_compute_is_ridge_over_intensity(batch: int, context: int) -> None:
    model = r.DecodeModel.of(LLAMA3_8B, "bf16", "bf16")
    ratio = r.memory_to_compute_ratio(model, batch, context, **H100)
    assert ratio == pytest.approx(
        r.ridge_intensity(**H100) / r.decode_intensity(model, batch, context)
    )


def test_without_kv_both_crossovers_agree() -> None:
    model = r.DecodeModel(1.6e12, 49e9, 2)
    with_kv = r.crossover_batch_with_kv(model, 0, **H100).batch
    assert with_kv == pytest.approx(r.crossover_batch(model, **H100))


def batch_for(**changes: float) -> sizing.MaxBatch:
    inputs = {"tpot_slo_s": 0.05, "context": 4000, "memory_bytes": 80e9, **H100, **changes}
    return sizing.max_batch_for_tpot(r.DecodeModel(8e9, 8e9, 2, 131072), **inputs)


def test_each_limit_can_bind_and_is_named() -> None:
    assert batch_for().limit == "capacity"
    assert batch_for(tpot_slo_s=0.01).limit == "slo_memory"
    tight = batch_for(peak_flops=1e12)
    assert (tight.limit, tight.batch) == ("slo_compute", 3)


def test_nothing_fits_where_the_weights_do_not() -> None:
    assert batch_for(memory_bytes=10e9).batch == 0
    assert batch_for(tpot_slo_s=0.001).batch == 0
    assert batch_for(memory_bytes=10e9, context=0).limit == "capacity"


def test_without_context_only_compute_limits() -> None:
    answer = batch_for(context=0)
    assert answer.limits["capacity"] is None
    assert answer.limit == "slo_compute"


def test_static_waste_over_several_cohorts() -> None:
    # cohorts [4, 1], [2]: slot-steps 2 · (4 + 2) = 12, of which 7 emit
    assert sizing.static_wasted_slot_step_fraction([4, 1, 2], 2) == pytest.approx(5 / 12)
    assert sizing.static_wasted_slot_step_fraction([3, 3], 2) == 0


def test_static_waste_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="1 slot or more"):
        sizing.static_wasted_slot_step_fraction([1], 0)


def test_end_to_end_latency_of_one_token_is_its_ttft() -> None:
    assert r.end_to_end_latency_s(0.3, 0.05, 1) == 0.3


@given(st.floats(0, 300), st.floats(0.01, 0.99), st.floats(0.1, 0.95))
def test_experts_that_no_row_picks_are_not_read(
    context: float, missed: float, share: float
) -> None:
    total = 46.7e9
    model = r.DecodeModel(
        total, 13e9, 2, 131072, 524288, expert_params=share * total, missed_share=missed
    )
    assert model.read_bytes(0) == pytest.approx(2 * total * (1 - share))
    assert model.read_bytes(1) == pytest.approx(2 * total * (1 - share * missed))
    assert model.read_bytes(1e6) == pytest.approx(model.weight_bytes)
    found = r.crossover_batch_with_kv(model, context, **H100).batch
    assert found is not None
    assert r.memory_to_compute_ratio(model, found, context, **H100) == pytest.approx(1)


def test_a_mixture_reads_as_many_experts_as_are_touched() -> None:
    moe = MoE(experts=8, experts_per_token=2, expert_intermediate=14336)
    model = r.DecodeModel(10.0, 4.0, 1, expert_params=8.0, missed_share=1 - 2 / 8)
    for rows in (1, 2, 16):
        assert model.read_bytes(rows) == pytest.approx(2.0 + moe.touched(rows))
