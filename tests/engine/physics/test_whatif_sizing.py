"""How many sequences, what fits, what it costs: by hand, and by trying it out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from engine.physics.catalogue import find_model, models
from engine.physics.max_batch import largest_batch
from engine.physics.memory_budget import Budget, budget, what_would_fit
from engine.physics.overrides import with_params
from engine.physics.sizing import max_batch_for_tpot
from engine.physics.whatif import answer
from engine.physics.whatif_step import decode_model
from tests.engine.asking import ask, meets

# --- the largest batch ---


def test_limits_are_those_of_the_closed_form() -> None:
    w = ask(context=4000, tpot_slo_s=0.05)
    d, model = w.deployment, decode_model(w)
    expected = max_batch_for_tpot(model, 4000, 0.05, d.peak_flops, d.bandwidth, d.memory_bytes)
    assert largest_batch(w) == expected
    assert expected.limit == "capacity"


def test_the_articles_50_ms_target_is_bound_by_capacity_at_122() -> None:
    eight = with_params(find_model("llama-3.1-8b"), 8e9, None)
    a = answer(replace(ask(context=4000, tpot_slo_s=0.05), model=eight))
    assert (a["max_batch"], a["max_batch_limit"]) == (122, "capacity")
    assert a["max_batch_limits"]["slo_memory"] == 288
    assert "At most 122 sequences of 4,000 tokens run within 50 ms a token" in a["sentences"]["slo"]
    assert "reading alone would allow 288" in a["sentences"]["slo"]


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"tpot_slo_s": 0.01, "context": 4000}, "slo_memory"),
        ({"tpot_slo_s": 0.01, "context": 10}, "slo_compute"),
        ({"tpot_slo_s": 1.0, "context": 4000}, "capacity"),
        ({"context": 4000}, "capacity"),
        ({"tpot_slo_s": 0.001, "context": 4000}, "slo_memory"),
    ],
)
@pytest.mark.parametrize("composition", ["overlap", "additive-kv"])
def test_the_limit_that_binds(changes: dict[str, Any], limit: str, composition: str) -> None:
    w = ask(**changes, composition=composition)
    found = largest_batch(w)
    assert found is not None
    assert found.limit == limit
    assert meets(w, found.batch) or found.batch == 0
    assert not meets(w, found.batch + 1)


def test_a_prefill_is_asked_about_the_decode_after_it() -> None:
    after = ask(context=3000, tpot_slo_s=0.05)
    before = ask(phase="prefill", context=1000, prompt_tokens=2000, tpot_slo_s=0.05)
    assert largest_batch(before) == largest_batch(after)


def test_sequences_without_context_are_limited_by_nothing_but_the_target() -> None:
    a = answer(ask())
    assert a["max_batch"] is None
    assert a["max_batch_reason"] == "nothing limits them below a million"
    assert largest_batch(ask(tpot_slo_s=0.05)).limit == "slo_compute"  # type: ignore[union-attr]


# --- memory ---


def test_what_would_fit_really_fits_and_is_the_least() -> None:
    w = ask("llama-3.1-70b", context=8000, batch=10)
    fits = what_would_fit(w)
    assert {fit.change for fit in fits} == {"devices", "dtype", "device"}
    for fit in fits:
        again = ask(
            *("llama-3.1-70b", fit.device, fit.dtype),
            context=8000,
            batch=fit.batch,
            tensor_parallel=fit.devices,
        )
        assert budget(again).fits
    devices_needed = next(fit.devices for fit in fits if fit.change == "devices")
    half = ask("llama-3.1-70b", context=8000, batch=10, tensor_parallel=devices_needed // 2)
    assert not budget(half).fits


def test_fewer_sequences_is_a_way_where_the_weights_fit() -> None:
    w = ask(context=4000, batch=500)
    fewer = what_would_fit(w)[0]
    assert (fewer.change, fewer.batch) == ("batch", 121)
    assert budget(replace(w, batch=121)).fits
    assert not budget(replace(w, batch=122)).fits


def test_what_fits_needs_nothing_else() -> None:
    a = answer(ask(context=1000, batch=8))
    assert a["fits"]
    assert a["would_fit"] == []
    m = a["memory"]
    parts = m["weight_bytes"] + m["kv_bytes"] + m["activation_bytes"] + m["free_bytes"]
    assert parts == pytest.approx(m["memory_bytes"])


def test_a_device_without_a_known_link_is_still_counted() -> None:
    w = ask("llama-3.1-8b", "rtx-4090", batch=64, context=4000)
    assert w.deployment.link is None
    ways = [(fit.devices, fit.device) for fit in what_would_fit(w) if fit.change == "devices"]
    assert ways == [(4, "rtx-4090")]


def test_weights_that_do_not_fit_leave_no_room() -> None:
    memory = answer(ask("llama-3.1-70b"))["memory"]
    assert (memory["kv_room_bytes"], memory["sequences_that_fit"]) == (0, 0)


def test_a_room_that_is_filled_exactly_is_filled() -> None:
    """0.3 / 0.1 is a little less than three in floating point."""
    room = Budget(1.0, 0.3, 0.0, 0.0, 0.1, None)
    assert room.kv_room_bytes / 0.1 < 3
    assert room.sequences == 3


def test_a_prefill_holds_its_prompt_beside_what_was_cached() -> None:
    a = answer(ask(phase="prefill", batch=2, context=100, prompt_tokens=300))
    assert a["kv_bytes"] == 2 * 400 * 131072
    assert a["kv_moved_bytes"] == 2 * (400 + 300) * 131072  # all read, the prompt's also written


def test_a_given_cache_is_moved_as_a_counted_one() -> None:
    counted = ask(phase="prefill", batch=2, context=100, prompt_tokens=300)
    given = replace(counted, kv_bytes_per_token=2 * 131072.0)
    assert answer(given)["kv_moved_bytes"] == 2 * answer(counted)["kv_moved_bytes"]


def test_activations_by_hand() -> None:
    dense, mixture = (
        answer(ask(name, batch=3))["memory"]["activation_bytes"]
        for name in ("llama-3.1-8b", "mixtral-8x7b")
    )
    # Two hidden states, gate and up of the MLP (of two experts), in bf16; logits in fp32.
    assert dense == 3 * (2 * 4096 + 2 * 14336) * 2 + 3 * 128256 * 4
    assert mixture == 3 * (2 * 4096 + 2 * 2 * 14336) * 2 + 3 * 32000 * 4
    prompt = answer(ask(phase="prefill", batch=3, prompt_tokens=100))["memory"]
    assert prompt["activation_bytes"] == 300 * (2 * 4096 + 2 * 14336) * 2 + 3 * 128256 * 4


def test_usable_memory_is_a_share() -> None:
    a = answer(ask(context=4000, usable_memory=0.9))
    assert a["memory"]["usable_bytes"] == 72e9
    assert a["max_batch"] == math.floor((72e9 - 16.06e9) / (4000 * 131072))
    assert "90% of 80 GB" in a["sentences"]["fit"]


def test_expert_parallel_holds_the_rest_of_the_model_on_every_group() -> None:
    one = answer(ask("mixtral-8x7b", tensor_parallel=2))["weight_bytes"]
    two = answer(ask("mixtral-8x7b", expert_parallel=2))["weight_bytes"]
    spec = models()["mixtral-8x7b"].spec
    assert spec is not None
    assert one == 2 * 46.7e9
    assert two - one == pytest.approx(2 * (spec.total_params - spec.all_expert_params))


# --- prices, latency, fewer bytes ---


def test_prices_by_hand() -> None:
    a = answer(ask(batch=64, context=1000, prompt_tokens=1000, price_per_hour=3.6))
    per_s = 3.6 / 3600
    assert a["prices"]["per_million_output_tokens"] == pytest.approx(
        per_s / a["tokens_per_s"] * 1e6
    )
    assert a["prices"]["per_million_input_tokens"] == pytest.approx(
        per_s * a["prefill"]["t_step_s"] / 1000 * 1e6
    )
    assert answer(ask())["prices"] is None


def test_several_devices_cost_several_prices() -> None:
    one, two = (
        answer(ask(price_per_hour=2.0, tensor_parallel=n, link_bandwidth=1e15))["prices"]
        for n in (1, 2)
    )
    assert two["per_million_output_tokens"] == pytest.approx(one["per_million_output_tokens"])


def test_a_whole_answer_is_ttft_and_the_rest_at_tpot() -> None:
    how = {"matmul_fraction": 0.5, "bandwidth_fraction": 0.8}
    a = answer(ask(context=500, batch=9, prompt_tokens=500, output_tokens=101, **how))
    assert a["e2el_s"] == pytest.approx(a["prefill"]["t_step_s"] + 100 * a["t_step_s"])
    assert a["ttft_floor_s"] == pytest.approx(a["prefill"]["t_step_s"] / 2)


def test_one_conversations_ceiling_does_not_depend_on_the_batch() -> None:
    alone, among = (answer(ask("qwen3-30b-a3b", batch=n, context=500)) for n in (1, 50))
    assert alone["single_stream_tokens_per_s"] == among["single_stream_tokens_per_s"]
    assert alone["single_stream_tokens_per_s"] == pytest.approx(alone["tokens_per_s"])
    assert alone["tpot_floor_s"] == among["tpot_floor_s"] == alone["t_step_s"]


def test_fewer_bytes_speed_up_by_what_they_save() -> None:
    speed = {
        (s["dtype"], s["kv_dtype"]): s["speed_up"]
        for s in answer(ask("llama-3.1-70b", batch=8, context=4000))["speed_ups"]
    }
    weights, kv = 2 * 70.55e9, 8 * 4000 * 327680
    assert speed["bf16", "bf16"] == 1
    assert speed["fp8", "bf16"] == pytest.approx((weights + kv) / (weights / 2 + kv))
    assert speed["int4", "fp8"] == pytest.approx((weights + kv) / (weights / 4 + kv / 2))


def test_the_maths_dtype_is_apart_from_the_weights() -> None:
    narrow, both = (answer(ask(dtype="fp8", math_dtype=m))["b_star"] for m in ("bf16", "fp8"))
    assert narrow == pytest.approx(148, rel=0.005)
    assert both == pytest.approx(295, rel=0.005)
