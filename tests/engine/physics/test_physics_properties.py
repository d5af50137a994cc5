"""What must hold for any model on any device, whatever the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.physics.catalogue import Device, devices, models
from engine.physics.cost import ChunkWork, StepCost, count_step
from engine.physics.deployment import Deployment, DeviceTimes
from engine.physics.model_spec import DTYPE_BYTES, ModelSpec
from engine.physics.roofline import DecodeModel, crossover_batch
from engine.physics.shapes import MLA, MoE, Window

H100 = devices()["h100-sxm"]
SHAPES = [model.spec for model in models().values() if model.spec]
catalogue = st.sampled_from(SHAPES)


@st.composite
def made_up(draw: st.DrawFn) -> ModelSpec:
    """Any shape, whether anybody has built it or not."""
    small, width = st.integers(1, 12), st.integers(1, 512)
    layers, kv_heads = draw(small), draw(small)
    latent = MLA(draw(st.none() | width), draw(width), draw(width), draw(width), draw(width))
    window = Window(draw(st.integers(1, 5000)), draw(st.integers(1, layers)))
    experts = draw(st.integers(1, 64))
    mixture = MoE(experts, draw(st.integers(1, experts)), draw(width), draw(st.integers(0, 99)))
    attention = draw(st.sampled_from([{}, {"mla": latent}, {"window": window}]))
    moe = draw(st.none() | st.just(mixture))
    heads = kv_heads * draw(small)
    sizes = [layers, draw(width), draw(width), heads, kv_heads, draw(width), draw(width)]
    return ModelSpec("any", *sizes, draw(st.booleans()), 4096, moe=moe, **attention)


specs = catalogue | made_up()
batches = st.integers(1, 2048)
contexts = st.integers(0, 100_000)
fractions = st.floats(0.05, 1)
dtypes = st.sampled_from(sorted(DTYPE_BYTES))


@st.composite
def any_deployments(draw: st.DrawFn) -> Deployment:
    return Deployment(
        draw(st.sampled_from(list(devices().values()))),
        weight_dtype=draw(dtypes),
        kv_dtype=draw(dtypes),
        math_dtype="bf16",
        matmul_fraction=draw(fractions),
        bandwidth_fraction=draw(fractions),
        overhead_s=draw(st.floats(0, 0.01)),
    )


deployments = any_deployments()


def decode(d: Deployment, spec: ModelSpec, batch: int, context: int) -> DeviceTimes:
    cost = count_step(spec, (), d.weight_dtype, d.kv_dtype, decode_starts=[context] * batch)
    return d.step_times(spec, cost, batch)


def prefill(d: Deployment, spec: ModelSpec, tokens: int, context: int) -> DeviceTimes:
    cost = count_step(spec, [ChunkWork(tokens, context, 0, 1)], d.weight_dtype, d.kv_dtype)
    return d.step_times(spec, cost, tokens)


def not_less(more: float, less: float) -> bool:
    """Up to the rounding of floats."""
    return more >= less * (1 - 1e-12)


@given(deployments, specs, batches, contexts, st.integers(0, 500))
def test_time_never_falls_when_the_batch_grows(
    d: Deployment, spec: ModelSpec, batch: int, context: int, more: int
) -> None:
    small, large = (decode(d, spec, b, context) for b in (batch, batch + more))
    assert not_less(large.t_step_s, small.t_step_s)
    assert not_less(large.t_memory_s, small.t_memory_s)
    assert not_less(large.t_compute_s, small.t_compute_s)


@given(deployments, specs, st.integers(1, 64), contexts, st.integers(0, 50_000))
def test_time_never_falls_when_the_context_grows(
    d: Deployment, spec: ModelSpec, batch: int, context: int, more: int
) -> None:
    near, far = (decode(d, spec, batch, c) for c in (context, context + more))
    assert not_less(far.t_step_s, near.t_step_s)
    longer = prefill(d, spec, batch, context + more).t_step_s
    assert not_less(longer, prefill(d, spec, batch, context).t_step_s)


@given(deployments, specs, st.integers(2, 4096), st.integers(0, 4096), contexts)
def test_time_never_falls_when_the_prompt_grows(
    d: Deployment, spec: ModelSpec, tokens: int, more: int, context: int
) -> None:
    short, long = (prefill(d, spec, n, context).t_step_s for n in (tokens, tokens + more))
    assert not_less(long, short)


@given(deployments, specs, batches, contexts, dtypes, dtypes)
def test_time_never_falls_when_bytes_grow(
    d: Deployment, spec: ModelSpec, batch: int, context: int, one: str, other: str
) -> None:
    few, many = sorted((one, other), key=DTYPE_BYTES.__getitem__)
    for field in ("weight_dtype", "kv_dtype"):
        light, heavy = (decode(replace(d, **{field: b}), spec, batch, context) for b in (few, many))
        assert not_less(heavy.t_step_s, light.t_step_s)


@given(specs, batches, contexts, st.floats(1, 10), fractions)
def test_throughput_never_falls_with_bandwidth(
    spec: ModelSpec, batch: int, context: int, factor: float, fraction: float
) -> None:
    d = Deployment(H100, "bf16", "bf16", "bf16", bandwidth_fraction=fraction)
    wider = Device(**{**H100.model_dump(), "bandwidth": H100.bandwidth * factor})
    before = batch / decode(d, spec, batch, context).t_step_s
    after = batch / decode(replace(d, device=wider), spec, batch, context).t_step_s
    assert not_less(after, before)
    slower = replace(d, bandwidth_fraction=fraction / factor)
    assert not_less(before, batch / decode(slower, spec, batch, context).t_step_s)


@given(deployments, specs, batches, contexts)
def test_a_step_is_never_faster_than_its_floor(
    d: Deployment, spec: ModelSpec, batch: int, context: int
) -> None:
    times = decode(d, spec, batch, context)
    assert not_less(times.t_step_s, times.floor_s + times.overhead_s)
    assert not_less(prefill(d, spec, batch, context).t_step_s, times.overhead_s)


@given(catalogue, st.sampled_from([1, 2, 4, 8]), st.integers(1, 256), contexts)
def test_sharing_never_takes_more_than_its_links(
    spec: ModelSpec, devices_used: int, batch: int, context: int
) -> None:
    """More devices only ever cost what they exchange, where heads can be cut."""
    if spec.heads % devices_used:
        return
    alone = Deployment(H100, "bf16", "bf16", "bf16")
    shared = decode(replace(alone, tensor_parallel=devices_used), spec, batch, context)
    one = decode(alone, spec, batch, context)
    assert not_less(one.t_step_s, shared.t_step_s - shared.t_link_s)
    assert (shared.t_link_s > 0) == (devices_used > 1)


@given(st.floats(1e6, 1e13), st.floats(1e6, 1e13), st.sampled_from([0.5, 1.0, 2.0]))
def test_b_star_of_a_dense_model_does_not_depend_on_its_size(
    one: float, other: float, width: float
) -> None:
    first, second = (DecodeModel(n, n, width) for n in (one, other))
    peaks = {"peak_flops": 989e12, "bandwidth": 3.35e12}
    assert crossover_batch(first, **peaks) == pytest.approx(crossover_batch(second, **peaks))


@pytest.mark.parametrize("spec", [s for s in SHAPES if not s.moe], ids=lambda spec: spec.name)
def test_b_star_of_dense_shapes_is_the_ridge(spec: ModelSpec) -> None:
    model = DecodeModel.of(spec, "bf16", "bf16")
    assert crossover_batch(model, 989e12, 3.35e12) == pytest.approx(295.22, rel=1e-4)


@given(specs, st.lists(contexts, max_size=40), dtypes, dtypes)
def test_counts_are_whole_and_no_part_exceeds_the_whole(
    spec: ModelSpec, starts: list[int], weights: str, cache: str
) -> None:
    cost: StepCost = count_step(spec, (), weights, cache, decode_starts=starts)
    assert all(isinstance(value, int) and value >= 0 for value in cost)
    everything = spec.total_params + len(starts) * spec.hidden
    assert cost.weight_bytes <= round(everything * DTYPE_BYTES[weights])
    assert spec.active_params <= spec.total_params
