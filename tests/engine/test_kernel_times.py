"""Time, FLOPs and bytes of each kernel of a step: they are the step's own, and cost it nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.backends.cpu import CPUBackend
from engine.backends.kernel_times import KernelTime, summed
from engine.batch import Chunk, ScheduledBatch
from engine.kernel_samples import EVERY_NS, KernelSampling
from engine.models.weights import ModelSource
from engine.physics.catalogue import find_model
from engine.physics.cost import ChunkWork, count_step
from engine.physics.kernel_cost import KERNELS, count_kernels
from engine.physics.model_spec import ModelSpec
from engine.quantisation import counted_as, head_dtype
from engine.request import Request, SamplingParams
from kernels.simd.support import runs
from telemetry.schema import KernelSampleRecord, StepRecord
from tests.engine.conftest import BLOCK_SIZE, MakeEngine
from tests.engine.recording import Recording, run_all
from tests.engine.tiny_llama import PAD_TOKEN, blocks_for, prompt, sequence

VECTOR = pytest.param("vector", marks=pytest.mark.skipif(not runs("fp32"), reason="needs AVX-512"))
MERGED = {"vector": {"silu_and_mul"}, "torch": set[str]()}


def added(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)


# --- counting ---

STEPS = {
    "one decode": [ChunkWork(1, 40, 0, 1)],
    "a first chunk, nothing sampled": [ChunkWork(100, 0)],
    "mixed, with padding": [ChunkWork(30, 7, 5, 1), ChunkWork(1, 12, 0, 1, True)],
}


def spec_of(name: str) -> ModelSpec:
    spec = find_model(name).spec
    assert spec is not None
    return spec


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("model", ["smollm2-135m", "llama-3.1-8b"])
def test_kernels_add_up_to_their_step(model: str, step: str, dtype: str) -> None:
    spec = replace(spec_of(model), intermediate=1531)  # int4's bytes are then no whole numbers
    dtypes = (counted_as(dtype), counted_as(head_dtype(dtype)))
    cost = count_step(spec, STEPS[step], dtypes[0], "bf16", dtypes[1])
    work = count_kernels(spec, cost, *dtypes)
    assert tuple(sorted(work)) == tuple(sorted(KERNELS))
    assert added(w.flops for w in work.values()) == cost.flops
    assert added(w.bytes for w in work.values()) == cost.bytes
    linears = [w.flops for name, w in work.items() if name.endswith("_linear")]
    assert added(linears) == cost.linear_flops
    assert work["attention"] == (cost.attention_flops, cost.kv_read_bytes)
    assert work["lm_head"].flops == cost.head_flops


def test_a_linear_counts_its_own_weights() -> None:
    """By hand: 2 layers, hidden 4, 2 heads of 2, 1 KV head, MLP 6; 3 rows in bf16."""
    spec = ModelSpec("by hand", 2, 4, 6, 2, 1, 2, 10, False, 64)
    cost = count_step(spec, [ChunkWork(3, 0, 0, 1)], "bf16", "bf16")
    work = count_kernels(spec, cost, "bf16")
    assert work["qkv_linear"] == (2 * 2 * 4 * 8 * 3, 2 * 2 * 4 * 8)
    assert work["out_linear"] == (2 * 2 * 4 * 4 * 3, 2 * 2 * 4 * 4)
    assert work["gate_up_linear"] == (2 * 2 * 4 * 12 * 3, 2 * 2 * 4 * 12)
    assert work["down_linear"] == (2 * 2 * 6 * 4 * 3, 2 * 2 * 6 * 4)
    assert work["lm_head"] == (2 * 4 * 10, 2 * 4 * 10)
    assert work["embedding"] == (None, 2 * 4 * 3)
    assert work["rms_norm"] == (None, 2 * 5 * 4)
    assert work["rope_and_cache"] == (None, 3 * 2 * 2 * 2 * 2)
    assert work["silu_and_mul"] == (None, None)


def test_experts_are_not_counted_as_what_they_are_not() -> None:
    spec = spec_of("mixtral-8x7b")
    with pytest.raises(ValueError, match="not a dense model"):
        count_kernels(spec, count_step(spec, [ChunkWork(1, 4)], "bf16", "bf16"), "bf16")


# --- an engine's run ---


def by_step(recording: Recording) -> dict[int, list[KernelSampleRecord]]:
    found: dict[int, list[KernelSampleRecord]] = defaultdict(list)
    for record in recording.sampled["kernel_samples"]:
        found[record.step].append(record)
    return found


@pytest.mark.parametrize("kernels", ["torch", VECTOR])
def test_a_run_fills_kernel_samples(
    smollm: ModelSource, make_engine: MakeEngine, kernels: str
) -> None:
    """A prompt and decodes of the default model: a sample of each phase, which is its step's."""
    slots = 64 * BLOCK_SIZE
    backend = CPUBackend(smollm, dtype="fp32", kv_dtype="fp32", kv_slots=slots, kernels=kernels)
    engine, recording = make_engine(smollm, backend, blocks=64)
    engine.submit(Request(tuple(range(100, 300)), SamplingParams(4, ignore_eos=True)))
    run_all(engine)
    steps = {step.step: step for step in recording.steps}
    sampled = by_step(recording)
    assert [steps[number].phase for number in sampled][:2] == ["prefill", "decode"]
    for number, records in sampled.items():
        check(steps[number], records, set(KERNELS) - MERGED[kernels])
    # Of one at least: a machine may take the cores between any two kernels of another.
    shares = [sum(r.time_s for r in rs) / steps[n].forward_s for n, rs in sampled.items()]
    assert max(shares) > 0.7


def check(step: StepRecord, records: list[KernelSampleRecord], expected: set[str]) -> None:
    assert {r.kernel for r in records} == expected
    calls = {r.kernel: r.calls for r in records}
    assert calls["attention"] == 30
    assert calls["rms_norm"] == 61
    assert calls["lm_head"] == 1
    assert all(r.time_s > 0 for r in records)
    assert sum(r.time_s for r in records) <= step.forward_s
    assert added(r.flops for r in records) == step.flops
    moved = step.weight_bytes + step.kv_read_bytes + step.kv_write_bytes
    assert added(r.bytes for r in records) == moved


def test_steps_without_records_time_nothing(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny)
    engine.records_steps = False
    engine.submit(Request((5, 6, 7), SamplingParams(2, ignore_eos=True)))
    run_all(engine)
    assert not recording.sampled


@pytest.mark.parametrize("kernels", ["torch", VECTOR])
def test_timing_changes_no_bit(smollm: ModelSource, kernels: str) -> None:
    backend = CPUBackend(
        smollm, dtype="fp32", kv_dtype="fp32", kv_slots=8 * BLOCK_SIZE, kernels=kernels
    )
    held = sequence(prompt(smollm.config, 40), range(blocks_for(40)))
    batch = ScheduledBatch([Chunk(held, 0, 40)])
    runner: Any = backend.runner
    found = []
    for timed in (False, True, False):
        inputs = runner.prepare(batch, PAD_TOKEN)
        found.append(runner.forward(inputs, timed).clone())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_the_next_sample_of_a_phase_is_a_second_later(
    smollm: ModelSource, tiny: ModelSource, make_engine: MakeEngine
) -> None:
    engine, _ = make_engine(tiny)
    sampling = KernelSampling(engine.backend, engine.accounting)
    held = sequence(prompt(smollm.config, 40), range(3))
    prefill, decode = ScheduledBatch([Chunk(held, 0, 9)]), ScheduledBatch([Chunk(held, 40, 1)])
    assert sampling.takes(decode, 5)
    assert not sampling.takes(decode, 6)
    assert sampling.takes(prefill, 7)
    assert not sampling.takes(decode, 4 + EVERY_NS)
    assert sampling.takes(decode, 5 + EVERY_NS)


def test_calls_of_one_kernel_are_one_row() -> None:
    times = summed(["rms_norm", "qkv_linear", "rms_norm"], [5, 7, 11])
    assert times == [KernelTime("rms_norm", 2, 16), KernelTime("qkv_linear", 1, 7)]
