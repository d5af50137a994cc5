"""Which dtype of the KV cache decodes faster: a real measurement on either kind of kernels."""

from __future__ import annotations

from typing import Any

import pytest

from engine import kv_choice
from engine.calibration import Calibration, Peak, best_kv_dtype
from kernels.simd.support import runs


@pytest.mark.parametrize("here", [True, False], ids=["these kernels", "torch"])
def test_a_rate_for_each_kv_dtype(here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not here:
        monkeypatch.setattr(kv_choice, "runs", lambda dtype: False)
    for dtype in ("fp32", "bf16"):
        rates = kv_choice.kv_read_rates(dtype)
        assert set(rates) == {"fp32", "bf16"}
        # From a slow board to a large server, in tokens of one layer with three heads of 64.
        assert all(1e4 < rate < 1e11 for rate in rates.values())


def test_a_rate_is_context_over_the_median_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 sequences of 512 tokens in 2 layers; one slow run of five does not count."""
    durations = iter([10, 10, 5000, 10, 20])
    now = [0]
    stamps: list[int] = []

    def clock() -> int:
        if len(stamps) % 2:
            now[0] += next(durations) * 1_000_000
        stamps.append(now[0])
        return now[0]

    monkeypatch.setattr(kv_choice, "now_ns", clock)
    monkeypatch.setattr(kv_choice, "runs", lambda dtype: False)
    assert kv_choice._rate("fp32", "fp32") == pytest.approx(8 * 512 * 2 / 0.01)
    assert len(stamps) == 2 * kv_choice.RUNS


def test_every_sequence_decodes_over_its_whole_context() -> None:
    chunks = kv_choice._batch().chunks
    assert len(chunks) == kv_choice.BATCH
    assert {(c.start, c.tokens, c.samples) for c in chunks} == {(kv_choice.CONTEXT - 1, 1, True)}
    slots = [slot for c in chunks for slot in c.sequence.slots[: kv_choice.CONTEXT].tolist()]
    assert sorted(slots) == list(range(kv_choice.BATCH * kv_choice.CONTEXT))


@pytest.mark.skipif(not runs("bf16"), reason="needs AVX-512 with bfloat16")
def test_the_vector_kernels_are_what_is_measured_where_they_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from engine.backends.simd_runner import SimdRunner

    seen: list[tuple[str, bool]] = []
    forward = SimdRunner.forward

    def watched(self: SimdRunner, inputs: Any) -> Any:
        seen.append((self.model._many.weights.dtype, self.cache.bf16))
        return forward(self, inputs)

    monkeypatch.setattr(SimdRunner, "forward", watched)
    kv_choice.kv_read_rates("bf16")
    assert seen == [("bf16", False)] * 6 + [("bf16", True)] * 6


def calibration(**rates: float) -> Calibration:
    return Calibration(
        device="a CPU",
        threads=1,
        torch_version="2",
        huge_pages="",
        dtypes={"bf16": Peak(peak_flops=1e12, spread=0, kernel="k")},
        peak_bandwidth=1e10,
        bandwidth_spread=0,
        bandwidth_kernel="k",
        ridge={"bf16": 100},
        kv_read_rates=rates,
        foreign_load=0,
        calibrated_at="2026-01-01T00:00:00",
    )


@pytest.mark.parametrize("dtype", ["bf16", "int8", "int4"])
def test_the_faster_is_chosen(dtype: str) -> None:
    assert best_kv_dtype(calibration(fp32=1e7, bf16=2e7), dtype) == "bf16"
    assert best_kv_dtype(calibration(fp32=2e7, bf16=1e6), dtype) == "fp32"


def test_exact_weights_keep_an_exact_cache() -> None:
    assert best_kv_dtype(calibration(fp32=1e6, bf16=2e7), "fp32") == "fp32"
