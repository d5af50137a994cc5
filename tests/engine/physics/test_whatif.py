"""What-ifs against arithmetic done by hand, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import UserError
from engine.physics.catalogue import find_device, find_model, models
from engine.physics.overrides import of_size, with_params, with_rates
from engine.physics.whatif import answer
from engine.physics.whatif_step import exact_step, field_step
from tests.engine.asking import ask

# --- one step ---


def test_a_dense_step_by_hand() -> None:
    step = field_step(ask("llama-3.1-70b", batch=4, context=1000))
    assert step.weight_bytes == 70.55e9 * 2
    assert step.kv_bytes == 4 * 1000 * 2 * 80 * 8 * 128 * 2
    assert step.flops == 4 * (2 * 70.55e9 + 4 * 64 * 128 * 80 * 1000)
    assert step.t_memory_s == pytest.approx((step.weight_bytes + step.kv_bytes) / 3.35e12)
    assert step.t_compute_s == pytest.approx(step.flops / 989e12)
    assert step.t_step_s == step.t_memory_s
    assert step.tokens_per_s == 4 / step.t_step_s


def test_fractions_link_and_overhead_make_the_step_longer() -> None:
    plain = field_step(ask(batch=8, context=100, tensor_parallel=2))
    real = field_step(
        ask(batch=8, context=100, tensor_parallel=2, bandwidth_fraction=0.8, overhead_s=1e-3)
    )
    assert plain.t_link_s is not None
    # Two ring all-reduces a layer, each device sending half of its rows twice.
    assert plain.t_link_s == pytest.approx(2 * 32 * 2 * (1 / 2) * 8 * 4096 * 2 / 450e9)
    assert plain.t_step_s == pytest.approx(plain.t_memory_s + plain.t_link_s)
    assert real.t_step_s == pytest.approx(plain.t_memory_s / 0.8 + plain.t_link_s + 1e-3)
    assert real.t_memory_s == plain.t_memory_s  # parts stay at the datasheet's peaks


def test_exact_counts_stand_beside_the_fields_arithmetic() -> None:
    w = ask(batch=4, context=1000)
    exact, spec = exact_step(w), w.model.spec
    assert exact is not None
    assert spec is not None
    # The embedding is a row a sequence, not the table; a decode sees itself and writes its KV.
    weights = spec.total_params - spec.head_params + 4 * spec.hidden
    assert exact.weight_bytes == 2 * weights
    assert exact.kv_bytes == 4 * (1001 + 1) * 131072
    assert answer(w)["exact"]["t_step_over_field"] == exact.t_step_s / field_step(w).t_step_s


def test_a_mixture_reads_the_experts_that_its_rows_touch() -> None:
    spec = models()["mixtral-8x7b"].spec
    assert spec is not None
    one_expert = 3 * 4096 * 14336
    for batch in (1, 2, 16):
        missed = 8 * (1 - 2 / 8) ** batch
        read = 46.7e9 - 32 * one_expert * missed
        assert field_step(ask("mixtral-8x7b", batch=batch)).weight_bytes == pytest.approx(2 * read)
    whole = field_step(ask("mixtral-8x7b", batch=1000))
    assert whole.weight_bytes == pytest.approx(2 * 46.7e9)
    assert whole.flops == 1000 * 2 * 12.9e9


def test_without_experts_known_reading_is_bounded_by_what_rows_can_touch() -> None:
    assert field_step(ask("deepseek-v4-pro")).weight_bytes == 2 * 49e9
    assert field_step(ask("deepseek-v4-pro", batch=10)).weight_bytes == 2 * 490e9
    assert field_step(ask("deepseek-v4-pro", batch=100)).weight_bytes == 2 * 1600e9


def test_latent_attention_never_gets_the_gqa_formula() -> None:
    a = answer(ask("deepseek-v3", "h200", "fp8", batch=2, context=1000))
    assert a["kv_bytes_per_token"] == 61 * (512 + 64) * 2 == 70272
    assert a["kv_bytes"] == a["kv_moved_bytes"] == 2 * 1000 * 70272
    assert "512 latent + 64 rope" in a["formulas"]["kv_bytes_per_token"]


def test_a_latent_is_held_by_each_tensor_parallel_device() -> None:
    a = answer(ask("deepseek-v3", "h200", "fp8", batch=2, context=1000, tensor_parallel=8))
    assert a["memory"]["kv_bytes"] == 8 * 2 * 1000 * 70272


def test_an_unknown_cache_stays_unknown() -> None:
    a = answer(ask("deepseek-v4-pro", batch=3, context=1000, tpot_slo_s=0.05))
    for name in ("kv_bytes_per_token", "kv_bytes", "kv_moved_bytes", "t_kv_s", "exact"):
        assert a[name] is None, name
    for name in ("b_star_with_kv", "max_batch", "max_batch_limit"):
        assert a[name] is None, name
    assert a["b_star_with_kv_reason"] == a["max_batch_reason"] == "the KV cache is unknown"
    assert a["b_star"] == pytest.approx(9640, rel=1e-4)
    assert len(a["unknown"]) == 2
    assert "nobody can say" in a["sentences"]["crossover"]


def test_links_of_an_unknown_shape_stay_unknown() -> None:
    a = answer(ask("deepseek-v4-pro", tensor_parallel=8))
    assert a["t_link_s"] is None
    assert a["t_step_s"] == a["t_memory_s"] == 2 * 49e9 / (8 * 3.35e12)
    assert a["unknown"][-1] == "time on the links: t_step_s is a floor without it"
    assert answer(ask("deepseek-v4-pro"))["t_link_s"] == 0


def test_a_given_cache_fills_in_what_is_unknown() -> None:
    a = answer(ask("deepseek-v4-pro", batch=3, context=1000, kv_bytes_per_token=50_000))
    assert a["kv_bytes"] == a["kv_moved_bytes"] == 3 * 1000 * 50_000
    assert a["formulas"]["kv_bytes_per_token"] == "given with the question"


def test_a_window_bounds_what_is_read_and_held() -> None:
    a = answer(ask("mistral-7b-v0.1", batch=1, context=20_000))
    assert a["kv_moved_bytes"] == a["kv_bytes"] == 4096 * 131072


# --- the articles' cases on catalogue models, as far as their prose is exact ---


def test_the_first_articles_70b() -> None:
    a = answer(ask("llama-3.1-70b", dtype="fp16"))
    assert a["t_memory_s"] == pytest.approx(0.042, rel=0.01)
    assert a["t_compute_s"] == pytest.approx(0.14e-3, rel=0.02)
    assert a["ridge"] == pytest.approx(295, rel=0.001)
    assert a["memory_over_compute"] == pytest.approx(a["ridge"] / a["intensity"])
    assert a["bound"] == "memory"
    assert not a["fits"]
    assert "141 GB of weights do not fit in 80 GB" in a["sentences"]["fit"]
    assert "What would: 2 x NVIDIA H100 SXM 80 GB, or fp8 weights" in a["sentences"]["fit"]


def test_a_4k_prefill_of_a_70b_has_a_floor_of_584_ms() -> None:
    a = answer(ask("llama-3.1-70b", phase="prefill", prompt_tokens=4096))
    p = a["prefill"]
    assert p["t_linear_s"] == pytest.approx(0.584, rel=0.001)
    attended = 4096 * 4097 / 2
    assert p["t_quadratic_s"] == pytest.approx(4 * 64 * 128 * 80 * attended / 989e12)
    assert a["t_compute_s"] == pytest.approx(p["t_linear_s"] + p["t_quadratic_s"])
    assert a["bound"] == "compute"
    assert a["t_step_s"] > 0.3  # the article's figure cannot be one H100's


def test_doubling_a_prompt_doubles_linear_work_and_quadruples_attention() -> None:
    short, long = (
        answer(ask("llama-3.1-70b", phase="prefill", prompt_tokens=n))["prefill"]
        for n in (4096, 8192)
    )
    assert long["t_linear_s"] / short["t_linear_s"] == pytest.approx(2)
    # Causal attention counts each position's own too, so it is 4 less one part in 4,097.
    assert long["t_quadratic_s"] / short["t_quadratic_s"] == pytest.approx(4, rel=3e-4)


def test_prefill_over_length_goes_as_far_as_the_model_does() -> None:
    lengths = answer(ask("llama-2-13b", prompt_tokens=100))["prefill"]["over_length"]
    assert [p["prompt_tokens"] for p in lengths] == [128, 256, 512, 1024, 2048, 4096]
    alone = answer(ask("llama-2-13b", prompt_tokens=1024))["prefill"]
    assert lengths[3] == {name: alone[name] for name in lengths[3]}


def test_a_context_beyond_the_models_own_is_noted() -> None:
    beyond = answer(ask("llama-2-13b", context=4097))
    assert beyond["notes"] == ["Llama 2 13B is made for 4,096 tokens, not for 4,097"]
    both = answer(ask("llama-2-13b", phase="prefill", context=4000, prompt_tokens=97))
    assert both["notes"] == beyond["notes"]
    assert answer(ask("llama-2-13b", context=4096))["notes"] == []
    # A decode's prompt is another way to have come to a context, not added to it.
    assert answer(ask("llama-2-13b", context=100, prompt_tokens=4000))["notes"] == []


@pytest.mark.parametrize(
    ("batch", "published_ms"),
    [(1, 4.98), (8, 12.13), (16, 20.30), (32, 36.65), (64, 69.33), (240, 249.09)],
)
def test_the_jax_scaling_books_series(batch: int, published_ms: float) -> None:
    """LLaMA-2 13B in bf16 on 8 TPU v5e at 8k of context; the book leaves the links out."""
    w = ask(
        *("llama-2-13b", "tpu-v5e"),
        batch=batch,
        context=8192,
        tensor_parallel=8,
        link_bandwidth=1e15,
        composition="additive-kv",
    )
    step = field_step(w)
    assert step.t_step_s * 1e3 == pytest.approx(published_ms, rel=0.02)
    assert step.t_link_s == pytest.approx(0, abs=1e-6)
    overlapped = field_step(replace(w, composition="overlap"))
    assert overlapped.t_step_s <= step.t_step_s


# --- what cannot be ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "batch is 0: use 1 to 1,000,000 sequences"),
        ({"batch": -2}, "batch is -2"),
        ({"context": -1}, "context is -1: use 0 to"),
        ({"phase": "prefil"}, "did you mean 'prefill'"),
        ({"phase": "prefill"}, "a prefill needs a prompt"),
        ({"prompt_tokens": 0}, "prompt tokens is 0"),
        ({"output_tokens": 0}, "output tokens is 0"),
        ({"tpot_slo_s": 0.0}, "TPOT target is 0"),
        ({"tpot_slo_s": math.nan}, "TPOT target is nan"),
        ({"price_per_hour": -1.0}, "price per hour is -1"),
        ({"composition": "both"}, "unknown composition 'both': use one of additive-kv, overlap"),
        ({"usable_memory": 0.0}, "usable memory is 0"),
        ({"usable_memory": 1.1}, "usable memory is 1.1"),
        ({"kv_bytes_per_token": -5.0}, "KV bytes per token is -5"),
    ],
)
def test_a_number_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ask(**changes)


# --- numbers given instead of the catalogue's ---


def test_a_size_alone_is_a_model_without_a_cache() -> None:
    model = of_size(1600e9, 49e9)
    assert (model.title, model.spec) == ("A model of 1600B parameters, 49B active", None)
    with pytest.raises(UserError, match="active parameters is 9e\\+09: use at most all of them"):
        of_size(7e9, 9e9)
    with pytest.raises(UserError, match="parameters is nan"):
        of_size(math.nan)


def test_another_size_keeps_the_shape_and_says_so() -> None:
    known = find_model("llama-3.1-8b")
    model = with_params(known, 8e9, None)
    assert (model.total_params, model.active_params) == (8e9, 8e9)
    assert model.spec == known.spec
    assert model.title == "Llama 3.1 8B taken as 8B parameters"
    assert model.sources["total_params"] == "given with the question"
    mixture = with_params(find_model("mixtral-8x7b"), 47e9, None)
    assert mixture.active_params == 12.9e9


def test_other_rates_say_so() -> None:
    device = with_rates(find_device("h100-sxm"), "bf16", peak_flops=400e12)
    assert device.peak("bf16") == 400e12
    assert device.peak("fp8") == 1979e12
    assert device.title == "NVIDIA H100 SXM 80 GB with 400 TFLOP/s"
    assert device.sources["peak_flops"] == "given with the question"
    assert device.sources["bandwidth"] == find_device("h100-sxm").sources["bandwidth"]
    with pytest.raises(UserError, match="bandwidth is -1: use more than 0"):
        with_rates(device, "bf16", bandwidth=-1)
