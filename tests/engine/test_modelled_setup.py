"""A modelled device: what it assumes and says, and what is refused with the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import UserError
from engine.modelled_setup import modelled_setup


def config(**changes: Any) -> EngineConfig:
    usual: dict[str, Any] = {"model": "llama-3.1-8b", "device": "h100-sxm"}
    return EngineConfig(**{"backend": "modelled", **usual, **changes})


def test_the_cache_is_what_the_weights_leave() -> None:
    """90% of 80 GB less 16.06 GB of weights, in blocks of 16 tokens x 128 KiB."""
    setup = modelled_setup(config())
    weights = 2 * 8_030_261_248
    assert setup.capacity == (0.9 * 80e9 - weights) // (16 * 131_072)
    assert setup.offered == setup.capacity
    assert modelled_setup(config(kv_blocks=100)).offered == 100
    assert modelled_setup(config(kv_dtype="fp8")).capacity == pytest.approx(
        2 * setup.capacity, abs=2
    )


def test_each_assumption_has_a_value_and_a_source() -> None:
    stated = modelled_setup(config()).assumptions()
    assert stated["matmul_fraction"] == 0.8033
    assert "794.5" in stated["sources"]["matmul_fraction"]
    assert (stated["bandwidth_fraction"], stated["overhead_s"]) == (0.85, 100e-6)
    assert stated["sources"]["bandwidth_fraction"].startswith("assumed")
    given = modelled_setup(config(matmul_fraction=0.5, overhead_s=0.0)).assumptions()
    assert (given["matmul_fraction"], given["overhead_s"]) == (0.5, 0.0)
    assert given["sources"]["matmul_fraction"].startswith("stated")
    unknown = modelled_setup(config(device="l40s")).assumptions()
    assert unknown["matmul_fraction"] == 0.75
    assert unknown["sources"]["matmul_fraction"].startswith("assumed")


@pytest.mark.parametrize(
    ("dtype", "math", "expected"),
    [
        ("auto", "auto", ("bf16", "bf16", "bf16")),
        ("fp16", "auto", ("fp16", "fp16", "fp16")),
        ("fp8", "auto", ("fp8", "bf16", "bf16")),
        ("fp8", "fp8", ("fp8", "fp8", "bf16")),
        ("int4", "auto", ("int4", "bf16", "bf16")),
    ],
)
def test_math_is_apart_from_the_weights(
    dtype: str, math: str, expected: tuple[str, str, str]
) -> None:
    deployment = modelled_setup(config(dtype=dtype, math_dtype=math)).deployment
    assert (deployment.weight_dtype, deployment.math_dtype, deployment.kv_dtype) == expected
    assert deployment.peak_flops == (1979e12 if math == "fp8" else 989e12)


def test_several_devices_hold_what_one_cannot() -> None:
    setup = modelled_setup(config(model="llama-3.1-70b", tensor_parallel=4))
    assert setup.device_title == "4 x NVIDIA H100 SXM 80 GB"
    assert setup.deployment.bandwidth == 4 * 3350e9
    assert setup.assumptions()["link_bandwidth"] == 450e9


def test_what_does_not_fit_says_why_and_what_would() -> None:
    with pytest.raises(UserError) as refused:
        modelled_setup(config(model="llama-3.1-70b"))
    said = str(refused.value)
    assert "141 GB of weights do not fit in 90% of 80 GB" in said
    assert "2 x NVIDIA H100 SXM 80 GB" in said
    assert "fp8" in said


REFUSED = [
    ({"model": "llama-3.1-8"}, "did you mean 'llama-3.1-8b'"),
    ({"device": "h100-sxn"}, "did you mean 'h100-sxm'"),
    ({"device": None}, "needs a --device: use one of .*h100-sxm"),
    ({"model": "deepseek-v4-pro"}, "only asked about with whatif"),
    ({"matmul_fraction": 1.01}, "matmul fraction is 1.01: use more than 0 and at most 1"),
    ({"matmul_fraction": 0.0}, "more than 0"),
    ({"bandwidth_fraction": -0.1}, "bandwidth fraction is -0.1"),
    ({"bandwidth_fraction": float("nan")}, "bandwidth fraction is nan"),
    ({"overhead_s": -0.001}, "overhead is -1 ms a step: use 0 to 10,000 ms"),
    ({"overhead_s": 11.0}, "overhead is 11000 ms"),
    ({"tensor_parallel": 0}, "tensor parallel is 0"),
    ({"tensor_parallel": 3}, "32 query heads: use a divisor"),
    ({"expert_parallel": 2}, "has no experts"),
    ({"device": "rtx-4090", "tensor_parallel": 2}, "no link bandwidth is known"),
    ({"kv_blocks": 10**6}, "KV blocks is 1,000,000: use 1 to 26,67"),
    ({"dtype": "bf17"}, "unknown dtype 'bf17'"),
    ({"math_dtype": "int4"}, "no int4 rate is known"),
    ({"threads": 2}, "threads are of the CPU backend"),
    ({"backend": "modeled"}, "did you mean 'modelled'"),
]


@pytest.mark.parametrize(("changes", "why"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why) as refused:
        modelled_setup(config(**changes))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [{"device": "h100-sxm"}, {"tensor_parallel": 2}, {"overhead_s": 0.0}, {"math_dtype": "bf16"}],
)
def test_settings_of_a_device_need_the_backend(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(UserError, match=f"{name.replace('_', '-')} is of a modelled device"):
        EngineConfig(**given)


def test_a_stated_link_makes_parallel_possible() -> None:
    setup = modelled_setup(config(device="rtx-4090", tensor_parallel=2, link_bandwidth=32e9))
    assert setup.deployment.link == 32e9


def test_a_config_file_is_a_model_too(tiny_model: Path) -> None:
    setup = modelled_setup(config(model=str(tiny_model / "config.json")))
    assert setup.spec.layers == 2
    assert setup.spec.max_context == 512
