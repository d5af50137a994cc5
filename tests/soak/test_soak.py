"""A soak of a few hundred steps, and that a soak would notice."""

from __future__ import annotations

import pytest

from engine.backends.cpu import CPUBackend
from engine.batch import ScheduledBatch, StepOutput
from engine.block_manager import BlockManager
from engine.models.loader import open_model
from engine.models.names import DEFAULT_MODEL
from engine.models.weights import ModelSource
from tests.engine.random_model import random_model
from tests.soak.soak import BLOCK_SIZE, BLOCKS, Soak, Subject
from tests.soak.watch import MIB, Memory


@pytest.fixture(scope="module")
def source() -> ModelSource:
    return random_model(open_model(DEFAULT_MODEL), 32, 6, 2)


def make_soak(source: ModelSource, backend: CPUBackend | None = None) -> Soak:
    backend = backend or CPUBackend(
        source, dtype="fp32", kv_dtype="fp32", kv_slots=BLOCKS * BLOCK_SIZE
    )
    return Soak(Subject(source, backend, "fp32", exact=backend.kernels == "vector"), seed=0)


def after(soak: Soak, steps: int) -> bool:
    return soak.watch.counts["steps"] >= steps


def test_a_short_soak_meets_everything_and_loses_nothing(source: ModelSource) -> None:
    soak = make_soak(source)
    figures = soak.run(lambda: after(soak, 2500))
    ended = sum(n for name, n in figures.items() if name.startswith("ended: "))
    assert ended == figures["requests"]
    for name in ("changes", "refused_changes", "refused_requests", "preemptions", "evictions"):
        assert figures[name] > 0, name
    for name in ("prefix_hit_tokens", "recomputed_tokens", "telemetry_bytes", "ended: cancelled"):
        assert figures[name] > 0, name
    assert figures.get("answers_checked", 0) > 0 or not soak.subject.exact


def test_a_lost_block_is_noticed(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    soak = make_soak(source)
    release, calls = BlockManager.release, []

    def forget_the_tenth(self: BlockManager, owner: int) -> None:
        calls.append(owner)
        if len(calls) != 10:
            release(self, owner)

    monkeypatch.setattr(BlockManager, "release", forget_the_tenth)
    with pytest.raises(AssertionError):
        soak.run(lambda: after(soak, 2500))


def test_a_changed_answer_is_noticed(source: ModelSource) -> None:
    class Batchy(CPUBackend):
        def sample(self, batch: ScheduledBatch, logits: object) -> StepOutput:
            tokens = [len(batch.chunks)] * sum(c.samples for c in batch.chunks)
            return StepOutput(tokens)

    backend = Batchy(source, dtype="fp32", kv_dtype="fp32", kv_slots=BLOCKS * BLOCK_SIZE)
    soak = Soak(Subject(source, backend, "fp32", exact=True), seed=0)
    with pytest.raises(AssertionError, match="a schedule changed an answer"):
        soak.run(lambda: after(soak, 2500))


@pytest.mark.parametrize("leak", [0, 3 * MIB])
def test_growth_of_memory_is_measured_after_the_warm_up(leak: int) -> None:
    """A minute of warm-up that takes 500 MiB, then `leak` a minute, with peaks on top."""
    sizes = [min(t, 60) * 500 * MIB // 60 + max(0, t - 60) * leak // 60 for t in range(241)]
    peaked = [(float(t), size + (t % 7 == 0) * 50 * MIB) for t, size in enumerate(sizes)]
    growth, slope = Memory(samples=peaked).growth()
    assert growth == pytest.approx(3 * leak, rel=0.05)
    assert slope == pytest.approx(leak, rel=0.05)
