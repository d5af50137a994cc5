"""From a step that ran to its telemetry."""

from __future__ import annotations

from dataclasses import dataclass

from engine.batch import Chunk, ScheduledBatch
from engine.decodes import Decodes, Ints, int_column
from engine.messages import TokenMessage
from engine.physics import cost as physics
from engine.physics.model_spec import ModelSpec
from engine.quantisation import counted_as, head_dtype, step_dtype
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
    """What the counts of every step depend on.

    one_copy: every step reads the weights in `dtype`, however many rows it has; the CPU's kernels
    read others where quantised ones do not pay (see `engine.quantisation`).
    """

    spec: ModelSpec
    dtype: str
    kv_dtype: str
    peaks: Peaks
    one_copy: bool = False

    def step_dtypes(self, rows: int) -> tuple[str, str]:
        """As physics counts them: dtypes of the linear layers and of the LM head in such a step."""
        if self.one_copy:
            return self.dtype, self.dtype
        dtype = step_dtype(self.dtype, rows)
        return counted_as(dtype), counted_as(head_dtype(dtype))


@dataclass(slots=True)
class StepTiming:
    """Instants of one step, monotonic ns: each part ends where the next begins."""

    start_ns: int
    scheduled_ns: int
    prepared_ns: int
    forwarded_ns: int
    end_ns: int
    involuntary_switches: int | None


class _Mix:
    """Counts of a batch by kind of chunk. Each real token is counted in exactly one kind."""

    def __init__(self, plan: ScheduledBatch) -> None:
        self.prefill_seqs = self.recompute_seqs = self.padded_slots = 0
        self.decode_seqs = self.decode_tokens = plan.num_decodes
        self.prefill_tokens = self.recomputed_tokens = self.padded_prefill_tokens = 0
        for chunk in plan.others:
            phase = chunk.phase
            if phase == "decode":
                self.decode_seqs += 1
                self.decode_tokens += chunk.tokens
            elif phase == "padded":
                self.padded_slots += 1
            else:
                self._add_prompt_work(chunk, phase)

    def _add_prompt_work(self, chunk: Chunk, phase: str) -> None:
        self.prefill_seqs += phase == "prefill"
        self.recompute_seqs += phase == "recompute"
        self.prefill_tokens += chunk.prefill_tokens
        self.recomputed_tokens += chunk.recomputed_tokens
        self.decode_tokens += chunk.decode_tokens  # the first new one after a recompute
        self.padded_prefill_tokens += chunk.padding

    @property
    def phase(self) -> str:
        if not self.prefill_seqs + self.recompute_seqs:
            return "decode"
        return "mixed" if self.decode_seqs or self.padded_slots else "prefill"


def phase_of(plan: ScheduledBatch) -> str:
    """What a batch computes; one of telemetry.schema.PHASES."""
    return _Mix(plan).phase


def step_cost(plan: ScheduledBatch, accounting: Accounting) -> physics.StepCost:
    """What a batch runs and moves, counted exactly; the same before and after it has run."""
    if plan.cost is None:
        dtype, head = accounting.step_dtypes(plan.rows)
        works = [_work(c) for c in plan.others]
        starts = plan.decodes.starts if plan.decodes else ()
        plan.cost = physics.count_step(
            accounting.spec, works, dtype, accounting.kv_dtype, head, starts
        )
    return plan.cost


def step_record(
    number: int,
    scheduler: str,
    plan: ScheduledBatch,
    queue: SequenceQueue,
    timing: StepTiming,
    accounting: Accounting,
    evictions: int,
) -> StepRecord:
    """Called after the step and before finished sequences give back their slots."""
    mix = _Mix(plan)
    cost = step_cost(plan, accounting)
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
        n_running=queue.num_occupied - mix.padded_slots,
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
        kv_blocks_cached=queue.blocks.num_cached,
        evictions=evictions,
        activation_bytes=None,
        prefix_hit_tokens=plan.prefix_hit_tokens,
        preemptions=len(plan.preemptions),
        recomputed_tokens=mix.recomputed_tokens,
        recompute_seqs=mix.recompute_seqs,
        recomputed_flops=cost.recomputed_flops,
        recomputed_bytes=cost.recomputed_bytes,
    )


def _work(chunk: Chunk) -> physics.ChunkWork:
    return physics.ChunkWork(
        chunk.tokens,
        chunk.start,
        chunk.padding,
        int(chunk.samples),
        chunk.padded,
        chunk.recomputed_tokens,
    )


def sequence_steps(plan: ScheduledBatch) -> SequenceSteps:
    """What each sequence got; called while all of them still hold their slots."""
    others = SequenceSteps(
        request_id=[c.sequence.request_id for c in plan.others],
        slot=[-1 if c.sequence.slot is None else c.sequence.slot for c in plan.others],
        phase=[c.phase for c in plan.others],
        tokens=[c.rows for c in plan.others],
        emitted_tokens=[int(c.emits) for c in plan.others],
        context_tokens=[c.end for c in plan.others],
        computed_context_tokens=[c.start for c in plan.others],
    )
    return others if plan.decodes is None else _decode_steps(plan.decodes).followed_by(others)


def _decode_steps(decodes: Decodes) -> SequenceSteps:
    members, ones = decodes.members, decodes.members.ones
    return SequenceSteps(
        request_id=members.request_ids,
        slot=members.slots,
        phase=members.phases,
        tokens=ones,
        emitted_tokens=ones,
        context_tokens=decodes.contexts,
        computed_context_tokens=decodes.start,
    )


def token_message(
    step: int,
    t_ns: int,
    plan: ScheduledBatch,
    tokens: Ints,
    finished: list[tuple[int, str]],
) -> TokenMessage:
    """What a step emitted; called when its sequences know their new tokens.

    tokens: of every chunk that samples, in order of the batch; those of padded rows stay behind.
    """
    others = [c.sequence for c in plan.others if c.emits]
    ids, indexes = int_column([s.request_id for s in others]), [s.output_tokens - 1 for s in others]
    emitted = int_column([s.token_ids[-1] for s in others])
    if plan.decodes is None:
        return TokenMessage(step, t_ns, ids, int_column(indexes), emitted, finished)
    decodes = plan.decodes
    return TokenMessage(
        step,
        t_ns,
        int_column(decodes.members.request_ids) + ids,
        int_column(decodes.indexes) + int_column(indexes),
        int_column(tokens[: len(decodes)]) + emitted,
        finished,
    )
