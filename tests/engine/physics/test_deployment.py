"""A counted step on devices that are not here: times, links, memory, and what cannot be."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import UserError
from engine.physics.catalogue import find_device, find_model
from engine.physics.cost import StepCost, count_step
from engine.physics.deployment import Deployment
from engine.physics.links import all_to_all_s, link_time_s, ring_all_reduce_s
from engine.physics.model_spec import ModelSpec

H100 = Deployment(find_device("h100-sxm"), "bf16", "bf16", "bf16")


def spec_of(name: str) -> ModelSpec:
    spec = find_model(name).spec
    assert spec is not None
    return spec


LLAMA_70B, QWEN_MOE, DEEPSEEK = map(spec_of, ("llama-3.1-70b", "qwen3-30b-a3b", "deepseek-v3"))


def decode(spec: ModelSpec, batch: int, context: int, weights: str = "bf16") -> StepCost:
    return count_step(spec, (), weights, "bf16", decode_starts=[context] * batch)


def test_a_70b_reads_for_42_ms_and_computes_for_a_seventh_of_one() -> None:
    times = H100.step_times(LLAMA_70B, decode(LLAMA_70B, 1, 0), 1)
    assert times.t_memory_s == pytest.approx(0.0418, rel=0.01)
    assert times.t_compute_s == pytest.approx(0.00014, rel=0.02)
    assert times.t_step_s == times.t_memory_s == times.floor_s
    assert (times.t_link_s, times.overhead_s) == (0, 0)


def test_fractions_and_overhead_come_on_top_of_the_datasheet() -> None:
    cost = decode(LLAMA_70B, 4, 100)
    ideal = H100.step_times(LLAMA_70B, cost, 4)
    real = replace(H100, bandwidth_fraction=0.8, matmul_fraction=0.5, overhead_s=0.001)
    times = real.step_times(LLAMA_70B, cost, 4)
    assert (times.t_compute_s, times.t_memory_s) == (ideal.t_compute_s, ideal.t_memory_s)
    assert times.t_step_s == pytest.approx(ideal.t_memory_s / 0.8 + 0.001)
    slow = replace(real, matmul_fraction=1e-3).step_times(LLAMA_70B, cost, 4)
    assert slow.t_step_s == pytest.approx(ideal.t_compute_s / 1e-3 + 0.001)


def test_parts_of_memory_time() -> None:
    cost = decode(LLAMA_70B, 8, 4000)
    times = H100.step_times(LLAMA_70B, cost, 8)
    assert times.t_weights_s == cost.weight_bytes / 3.35e12
    assert times.t_kv_s == cost.kv_bytes / 3.35e12
    assert times.t_memory_s == times.t_weights_s + times.t_kv_s


@pytest.mark.parametrize(("math_dtype", "b_star"), [("bf16", 148), ("fp8", 295)])
def test_the_math_has_its_own_dtype(math_dtype: str, b_star: float) -> None:
    """B* with fp8 weights: where reading and the linear layers take equal time."""
    deployment = replace(H100, weight_dtype="fp8", math_dtype=math_dtype)
    ridge = deployment.peak_flops / deployment.bandwidth
    assert ridge * 1 / 2 == pytest.approx(b_star, rel=0.005)
    cost = decode(LLAMA_70B, 1, 0, "fp8")
    times = deployment.step_times(LLAMA_70B, cost, 1)
    assert times.t_memory_s / times.t_compute_s == pytest.approx(b_star, rel=0.02)


def test_tensor_parallel_shares_everything_and_pays_two_all_reduces_a_layer() -> None:
    cost, four = decode(LLAMA_70B, 64, 1000), replace(H100, tensor_parallel=4)
    one, times = (d.step_times(LLAMA_70B, cost, 64) for d in (H100, four))
    assert times.t_compute_s == pytest.approx(one.t_compute_s / 4)
    assert times.t_memory_s == pytest.approx(one.t_memory_s / 4)
    row_bytes = 64 * 8192 * 2
    assert times.t_link_s == pytest.approx(80 * 2 * (2 * 3 / 4) * row_bytes / 450e9)
    assert times.t_step_s == pytest.approx(times.t_memory_s + times.t_link_s)
    slower = replace(four, link_bandwidth=45e9).step_times(LLAMA_70B, cost, 64)
    assert slower.t_link_s == pytest.approx(10 * times.t_link_s)


def test_expert_parallel_repeats_the_rest_and_sends_rows_to_their_experts() -> None:
    cost, four = decode(QWEN_MOE, 64, 1000), replace(H100, expert_parallel=4)
    times = four.step_times(QWEN_MOE, cost, 64)
    shared = (QWEN_MOE.shared_linear_params + QWEN_MOE.norm_params) * 2
    assert times.t_weights_s == pytest.approx((cost.weight_bytes + 3 * shared) / (4 * 3.35e12))
    sent = 16 * 8 * 2048 * 2  # its rows, each to 8 experts
    assert times.t_link_s == pytest.approx(48 * 2 * (3 / 4) * sent / 450e9)
    experts = QWEN_MOE.all_expert_params
    total = four.weight_bytes(QWEN_MOE)
    assert total == 2 * (4 * (QWEN_MOE.total_params - experts) + experts)


def test_both_ways_of_sharing_multiply() -> None:
    both = replace(H100, tensor_parallel=2, expert_parallel=4)
    assert (both.devices, both.memory_bytes) == (8, 640e9)
    assert both.peak_flops == 8 * 989e12
    link_s = link_time_s(QWEN_MOE, 64, 2, 4, 450e9)
    reduce_s = 48 * 2 * ring_all_reduce_s(16 * 4096, 2, 450e9)
    send_s = 48 * 2 * all_to_all_s(16 * 4096 * 8 / 2, 4, 450e9)
    assert link_s == pytest.approx(reduce_s + send_s)


def test_layers_without_experts_send_nothing_to_them() -> None:
    send_s = 58 * 2 * all_to_all_s(64 / 8 * 8 * 7168 * 2, 8, 450e9)  # 3 of DeepSeek's 61 are dense
    assert link_time_s(DEEPSEEK, 64, 1, 8, 450e9) == pytest.approx(send_s)


def test_alone_or_idle_nothing_is_exchanged() -> None:
    assert link_time_s(QWEN_MOE, 64, 1, 1, None) == 0
    assert link_time_s(QWEN_MOE, 0, 8, 1, 450e9) == 0
    with pytest.raises(ValueError, match="need a link bandwidth"):
        link_time_s(QWEN_MOE, 64, 2, 1, None)


def test_an_empty_step_is_overhead_alone() -> None:
    many = replace(H100, expert_parallel=4, overhead_s=0.002)
    assert many.step_times(QWEN_MOE, decode(QWEN_MOE, 0, 0), 0).t_step_s == 0.002


def test_what_a_kv_head_cannot_be_cut_into_is_held_twice() -> None:
    sixteen = replace(H100, tensor_parallel=16)
    assert sixteen.kv_copies(LLAMA_70B) == 2  # 8 KV heads
    assert replace(H100, tensor_parallel=8).kv_copies(LLAMA_70B) == 1
    five = replace(H100, tensor_parallel=5)
    assert five.kv_copies(replace(LLAMA_70B, heads=40)) == 2 * 5 / 8  # one device has two of eight
    assert sixteen.kv_copies(DEEPSEEK) == 16  # one latent for all heads
    cost = decode(DEEPSEEK, 32, 8000)
    times = sixteen.step_times(DEEPSEEK, cost, 32)
    assert times.t_kv_s == pytest.approx(cost.kv_bytes / 3.35e12)


def test_the_cache_gets_what_the_weights_leave() -> None:
    fp8 = replace(H100, weight_dtype="fp8")
    assert fp8.weight_bytes(LLAMA_70B) == LLAMA_70B.total_params
    assert fp8.kv_capacity_bytes(LLAMA_70B, usable=1.0) == 80e9 - LLAMA_70B.total_params
    assert fp8.kv_capacity_bytes(LLAMA_70B) == 72e9 - LLAMA_70B.total_params
    assert H100.kv_capacity_bytes(LLAMA_70B) == 0
    two = replace(H100, tensor_parallel=16).kv_capacity_bytes(LLAMA_70B, usable=1.0)
    assert two == (16 * 80e9 - 2 * LLAMA_70B.total_params) / 2


def test_assumptions_say_all_that_shapes_a_number() -> None:
    said = replace(H100, tensor_parallel=2, overhead_s=1e-4).assumptions()
    assert (said["peak_flops"], said["bandwidth"]) == (989e12, 3.35e12)
    assert (said["devices"], said["link_bandwidth"], said["overhead_s"]) == (2, 450e9, 1e-4)
    assert "datasheet" in said["sources"]["peak_flops"]
    assert "max(t_compute" in said["formula"]
    assert H100.assumptions()["link_bandwidth"] is None  # nothing is exchanged
    assert json.loads(json.dumps(said)) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel is 0: use a whole number from 1 to 1024"),
        ({"expert_parallel": 5000}, "expert_parallel is 5000: use a whole number from 1 to 1024"),
        ({"tensor_parallel": 1.5}, "tensor_parallel is 1.5: use a whole number"),
        ({"matmul_fraction": 0.0}, "matmul_fraction is 0.0: use more than 0 and at most 1"),
        ({"matmul_fraction": math.nan}, "matmul_fraction is nan: use more than 0"),
        ({"bandwidth_fraction": 1.2}, "bandwidth_fraction is 1.2: use more than 0 and at most 1"),
        ({"overhead_s": -1.0}, "overhead_s is -1.0: use 0 to 10"),
        ({"overhead_s": math.inf}, "overhead_s is inf: use 0 to 10"),
        ({"link_bandwidth": 0.0}, "link_bandwidth is 0.0: use more than 0"),
        ({"weight_dtype": "fp7"}, "unknown dtype 'fp7': use one of fp32"),
        ({"kv_dtype": "fp7"}, "unknown dtype 'fp7': use one of fp32"),
        ({"math_dtype": "fp64"}, "no fp64 rate is known .*: use bf16 or fp16 or fp8"),
        ({"device": find_device("rtx-4090"), "tensor_parallel": 2}, "no link bandwidth is known"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        replace(H100, **changes)
    assert "\n" not in str(error.value)


def test_a_stated_link_is_enough() -> None:
    pair = Deployment(
        find_device("rtx-4090"), "fp8", "fp8", "bf16", tensor_parallel=2, link_bandwidth=25e9
    )
    assert pair.step_times(LLAMA_70B, decode(LLAMA_70B, 1, 0), 1).t_link_s > 0


def test_a_model_that_cannot_be_cut_so_is_refused() -> None:
    with pytest.raises(UserError, match=r"tensor_parallel is 3, .* 64 query heads: use a divisor"):
        replace(H100, tensor_parallel=3).check(LLAMA_70B)
    with pytest.raises(UserError, match=r"llama-3.1-70b has no experts: use 1"):
        replace(H100, expert_parallel=2).weight_bytes(LLAMA_70B)
    three = replace(H100, expert_parallel=3)
    with pytest.raises(UserError, match="has 128 experts: use a divisor"):
        three.step_times(QWEN_MOE, decode(QWEN_MOE, 1, 0), 1)
