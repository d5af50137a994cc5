"""What holds for every model, device and dtype."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.physics.catalogue import devices, models
from engine.physics.max_batch import largest_batch
from engine.physics.overrides import of_size, with_rates
from engine.physics.whatif import WhatIf, answer
from engine.physics.whatif_step import exact_step, field_step
from tests.engine.asking import ask, meets

SHAPED = sorted(name for name, model in models().items() if model.spec)
DTYPES = ("int4", "fp8", "bf16", "fp32")
questions = st.builds(
    ask,
    st.sampled_from(SHAPED),
    st.sampled_from(sorted(devices())),
    st.sampled_from(DTYPES),
    batch=st.integers(1, 5000),
    context=st.integers(0, 200_000),
    composition=st.sampled_from(["overlap", "additive-kv"]),
    matmul_fraction=st.floats(0.1, 1),
    bandwidth_fraction=st.floats(0.1, 1),
    overhead_s=st.floats(0, 0.01),
)


@settings(max_examples=60)
@given(questions, st.integers(1, 1000), st.integers(1, 50_000))
def test_time_never_falls_with_batch_or_context(w: WhatIf, more: int, longer: int) -> None:
    now = field_step(w).t_step_s
    assert field_step(replace(w, batch=w.batch + more)).t_step_s >= now
    assert field_step(replace(w, context=w.context + longer)).t_step_s >= now


@settings(max_examples=60)
@given(questions)
def test_time_never_falls_with_bytes_and_no_step_beats_its_floor(w: WhatIf) -> None:
    times = [
        field_step(replace(w, deployment=replace(w.deployment, weight_dtype=dtype))).t_step_s
        for dtype in DTYPES
    ]
    assert times == sorted(times)
    step, exact = field_step(w), exact_step(w)
    assert exact is not None
    assert step.t_step_s >= step.floor_s
    assert exact.t_step_s >= exact.floor_s


@settings(max_examples=40)
@given(questions, st.floats(1, 10))
def test_throughput_never_falls_with_bandwidth(w: WhatIf, factor: float) -> None:
    faster = with_rates(
        w.deployment.device, "bf16", bandwidth=w.deployment.device.bandwidth * factor
    )
    other = replace(w, deployment=replace(w.deployment, device=faster))
    assert field_step(other).tokens_per_s >= field_step(w).tokens_per_s * (1 - 1e-12)


@settings(max_examples=40)
@given(st.floats(1e8, 1e12), st.sampled_from(DTYPES))
def test_b_star_of_a_dense_model_does_not_depend_on_its_size(size: float, dtype: str) -> None:
    w = ask(dtype=dtype)
    star = answer(replace(w, model=of_size(size)))["b_star"]
    assert star == pytest.approx(answer(w)["b_star"])


@settings(max_examples=40, deadline=None)
@given(questions, st.floats(0.001, 0.2))
def test_the_largest_batch_meets_its_target_and_one_more_does_not(w: WhatIf, target: float) -> None:
    asked = replace(w, tpot_slo_s=target)
    found = largest_batch(asked)
    if found is not None and found.batch < 1_000_000:
        assert found.batch == 0 or meets(asked, found.batch)
        assert not meets(asked, found.batch + 1)


@settings(max_examples=40, deadline=None)
@given(questions, st.sampled_from(["decode", "prefill"]), st.one_of(st.none(), st.floats(1e-4, 1)))
def test_every_answer_is_json(w: WhatIf, phase: str, target: float | None) -> None:
    """No number in it is infinite or none, whatever is asked."""
    asked = replace(w, phase=phase, prompt_tokens=w.context + 1, tpot_slo_s=target)
    json.dumps(answer(asked), allow_nan=False)
