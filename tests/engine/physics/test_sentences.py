"""The sentences: each names its numbers, and never says more than the answer knows."""

from __future__ import annotations

import pytest

from engine.physics.sentences import figures, gb, ms
from engine.physics.whatif import answer
from tests.engine.asking import ask


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.14155, "0.142"),
        (42.119, "42.1"),
        (80.0, "80"),
        (9639.96, "9,640"),
        (0, "0"),
        (0.000999, "0.000999"),
        (999.9, "1,000"),
        (1e6, "1,000,000"),
    ],
)
def test_three_figures_without_exponent_or_trailing_zeros(value: float, text: str) -> None:
    assert figures(value) == text


def test_units() -> None:
    assert ms(0.0421194) == "42.1 ms"
    assert gb(141.1e9) == "141 GB"


def test_the_headline_says_which_is_longer_and_by_how_much() -> None:
    said = answer(ask("llama-3.1-70b", dtype="fp16"))["sentences"]["headline"]
    assert said == (
        "Llama 3.1 70B in fp16 on NVIDIA H100 SXM 80 GB, decode at batch 1: reading takes 42.1 ms "
        "and computing 0.143 ms, so the step is memory-bound: 295 times more reading than "
        "computing."
    )
    computing = answer(ask(phase="prefill", prompt_tokens=4096))["sentences"]["headline"]
    assert "prefill of 4,096 tokens" in computing
    assert computing.endswith("times more computing than reading.")


def test_what_does_not_fit_and_what_would() -> None:
    assert answer(ask("llama-3.1-70b", dtype="fp16"))["sentences"]["fit"] == (
        "141 GB of weights do not fit in 80 GB (NVIDIA H100 SXM 80 GB). What would: "
        "2 x NVIDIA H100 SXM 80 GB, or fp8 weights (70.5 GB), or int4 weights (35.3 GB), "
        "or 1 x NVIDIA B200 180 GB, or 1 x NVIDIA GB200 (one of its GPUs) 186 GB, "
        "or 1 x AMD Instinct MI300X 192 GB."
    )


def test_what_fits_and_what_stays_free() -> None:
    said = answer(ask(context=1000, batch=8))["sentences"]["fit"]
    assert said.startswith("16.1 GB of weights and 1.05 GB of KV cache fit in 80 GB")
    assert said.endswith("; 62.9 GB stay free.")


def test_nothing_would_hold_a_model_beyond_all() -> None:
    said = answer(ask("llama-3.1-405b", "rtx-4090", batch=1_000_000, context=100_000))
    assert said["would_fit"] == []
    assert said["sentences"]["fit"].endswith("Nothing in the catalogue would hold it.")


def test_an_unknown_cache_is_said_to_be_unknown() -> None:
    said = answer(ask("deepseek-v4-pro", context=4000, tpot_slo_s=0.05))["sentences"]
    assert "(and a KV cache of unknown size)" in said["fit"]
    assert "cannot be said: the KV cache is unknown" in said["slo"]
    assert "a direction, not a size" in said["crossover"]


def test_the_limit_is_named_with_what_the_others_would_allow() -> None:
    assert answer(ask(context=4000, tpot_slo_s=0.05))["sentences"]["slo"] == (
        "At most 121 sequences of 4,000 tokens run within 50 ms a token: more KV cache does not "
        "fit (capacity); reading alone would allow 288; computing alone would allow 2,723."
    )


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (ask("llama-3.1-70b", tpot_slo_s=0.1), "the weights alone do not fit"),
        (ask(tpot_slo_s=0.001, context=10), "one step takes 4.79 ms"),
        (ask("llama-3.1-70b", dtype="fp8", context=40_000), "the weights leave 9.45 GB"),
    ],
)
def test_why_not_even_one_runs(question: object, why: str) -> None:
    said = answer(question)["sentences"]["slo"]  # type: ignore[arg-type]
    assert said.startswith("Not even one of the sequences")
    assert why in said


def test_the_crossover_exists_or_the_reason_is_given() -> None:
    near, far = (answer(ask(context=n))["sentences"]["crossover"] for n in (100, 4000))
    assert near.endswith("with 100 tokens of KV each at 387.")
    assert "with 4,000 tokens of KV each never: at a context of 4,000 tokens" in far
