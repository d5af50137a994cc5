"""From a step that ran to its telemetry."""

from __future__ import annotations

from dataclasses import dataclass

from engine.batch import Chunk, ScheduledBatch
from engine.physics import cost as physics
from engine.physics.model_spec import ModelSpec
from engine.schedulers import SequenceQueue
from engine.sink import SequenceSteps
from telemetry.clock import seconds
from telemetry.schema import StepRecord


@dataclass(frozen=True, slots=True)
class Peaks:
    """What the device can do at most: FLOP/s of the math dtype, bytes/s read."""

    flops: float
    bandwidth: float
    source: str = "measured"
    remedy: str = "recalibrate"  # what to do when a step beats them


@dataclass(frozen=True, slots=True)
class Accounting:
    """What the counts of every step depend on."""

    spec: ModelSpec
    dtype: str
    kv_dtype: str
    peaks: Peaks


@dataclass(slots=True)
class StepTiming:
    """Instants of one step, monotonic ns: each part ends where the next begins."""

    start_ns: int
    scheduled_ns: int
    prepared_ns: int
    forwarded_ns: int
    end_ns: int
    involuntary_switches: int


def is_prefill(chunk: Chunk) -> bool:
    """Whether the chunk computes prompt tokens."""
    return not chunk.padded and chunk.start < chunk.sequence.prompt_tokens


class _Mix:
    """Counts of a batch by kind of chunk."""

    def __init__(self, chunks: list[Chunk]) -> None:
        prefills = [c for c in chunks if is_prefill(c)]
        self.prefill_seqs = len(prefills)
        self.prefill_tokens = sum(c.tokens for c in prefills)
        self.padded_prefill_tokens = sum(c.padding for c in prefills)
        self.padded_slots = sum(c.padded for c in chunks)
        self.decode_seqs = len(chunks) - self.prefill_seqs - self.padded_slots
        self.decode_tokens = sum(c.tokens for c in chunks) - self.prefill_tokens - self.padded_slots

    @property
    def phase(self) -> str:
        if not self.prefill_seqs:
            return "decode"
        return "mixed" if self.decode_seqs or self.padded_slots else "prefill"


def step_record(
    number: int,
    scheduler: str,
    plan: ScheduledBatch,
    queue: SequenceQueue,
    timing: StepTiming,
    accounting: Accounting,
) -> StepRecord:
    """Called after the step and before finished sequences give back their slots."""
    mix = _Mix(plan.chunks)
    cost = physics.count_step(
        accounting.spec,
        [physics.ChunkWork(c.tokens, c.start, c.padding, int(c.samples), c.padded)
         for c in plan.chunks],
        accounting.dtype,
        accounting.kv_dtype,
    )  # fmt: skip
    peaks = accounting.peaks
    modelled = physics.times(cost, peaks.flops, peaks.bandwidth)
    floor_s = modelled.floor_s
    t_step_s = seconds(timing.end_ns - timing.start_ns)
    forward_s = seconds(timing.forwarded_ns - timing.prepared_ns)
    t_host_s = seconds(timing.end_ns - timing.start_ns - timing.forwarded_ns + timing.prepared_ns)
    return StepRecord(
        step=number,
        t_start_ns=timing.start_ns,
        t_step_s=t_step_s,
        scheduler=scheduler,
        phase=mix.phase,
        n_running=len(queue.occupied) - mix.padded_slots,
        n_waiting=len(queue.waiting),
        prefill_seqs=mix.prefill_seqs,
        decode_seqs=mix.decode_seqs,
        prefill_tokens=mix.prefill_tokens,
        decode_tokens=mix.decode_tokens,
        batch_slots=len(queue.slots),
        padded_slots=mix.padded_slots,
        padded_prefill_tokens=mix.padded_prefill_tokens,
        limit_bound=plan.limit_bound,
        flops=cost.flops,
        linear_flops=cost.linear_flops,
        attention_flops=cost.attention_flops,
        head_flops=cost.head_flops,
        padded_flops=cost.padded_flops,
        weight_bytes=cost.weight_bytes,
        kv_read_bytes=cost.kv_read_bytes,
        kv_write_bytes=cost.kv_write_bytes,
        padded_bytes=cost.padded_bytes,
        intensity=cost.intensity,
        t_compute_s=modelled.t_compute_s,
        t_memory_s=modelled.t_memory_s,
        t_weights_s=modelled.t_weights_s,
        t_kv_s=modelled.t_kv_s,
        t_overhead_s=None if floor_s is None else t_step_s - floor_s,
        t_inefficiency_s=None if floor_s is None else forward_s - floor_s,
        t_host_s=t_host_s,
        schedule_s=seconds(timing.scheduled_ns - timing.start_ns),
        prepare_s=seconds(timing.prepared_ns - timing.scheduled_ns),
        forward_s=forward_s,
        sample_s=seconds(timing.end_ns - timing.forwarded_ns),
        involuntary_switches=timing.involuntary_switches,
        mfu=physics.mfu(cost, t_step_s, peaks.flops),
        mbu=physics.mbu(cost, t_step_s, peaks.bandwidth),
        bound=physics.bound(modelled, t_step_s, t_host_s),
        kv_blocks_total=queue.blocks.num_blocks,
        kv_blocks_used=queue.blocks.num_used,
        kv_blocks_cached=0,
        evictions=0,
        activation_bytes=None,
        prefix_hit_tokens=0,
        preemptions=0,
        recomputed_tokens=0,
    )


def sequence_steps(plan: ScheduledBatch) -> SequenceSteps:
    """What each sequence got; called while all of them still hold their slots."""
    columns = SequenceSteps()
    for chunk in plan.chunks:
        phase = "padded" if chunk.padded else "prefill" if is_prefill(chunk) else "decode"
        columns.request_id.append(chunk.sequence.request_id)
        columns.slot.append(chunk.sequence.slot if chunk.sequence.slot is not None else -1)
        columns.phase.append(phase)
        columns.tokens.append(chunk.rows)
        columns.emitted_tokens.append(int(chunk.emits))
        columns.context_tokens.append(chunk.end)
        columns.computed_context_tokens.append(chunk.start)
    return columns
