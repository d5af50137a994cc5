"""The exact cost of one step from its batch: FLOPs and bytes by part, and the times they imply.

Counted is what ran; the padded and the recomputed part apart. Per row the linear layers cost
2 · linear_params; a query at position p attends to p + 1 positions; the LM head runs for sampled
rows only. Weights are read once a step, KV once per sequence and chunk. FLOPs as in Kaplan et al.
2020, section 2.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from engine.physics.model_spec import ModelSpec, dtype_bytes


class ChunkWork(NamedTuple):
    """What one sequence ran in one step.

    tokens: real tokens, at positions start .. start + tokens - 1.
    padded_tokens: rows that ran as padding after them (static prefill), positions continuing.
    sampled: rows that the LM head ran for.
    padded: the whole chunk was padding (decode row of a finished sequence of a static cohort).
    recomputed: how many of the first tokens had been computed before a preemption took them.
    """

    tokens: int
    start: int
    padded_tokens: int = 0
    sampled: int = 0
    padded: bool = False
    recomputed: int = 0


class WorkSums(NamedTuple):
    """Sums over the chunks of a step: rows, attended positions, KV positions read, head rows."""

    rows: int
    attended: int
    context: int
    sampled: int


@dataclass(frozen=True, slots=True)
class StepCost:
    """FLOPs and bytes of one step; names and meaning as in telemetry.schema.StepRecord."""

    linear_flops: int
    attention_flops: int
    head_flops: int
    padded_flops: int
    weight_bytes: int
    kv_read_bytes: int
    kv_write_bytes: int
    padded_bytes: int
    recomputed_flops: int = 0
    recomputed_bytes: int = 0

    @property
    def flops(self) -> int:
        return self.linear_flops + self.attention_flops + self.head_flops

    @property
    def kv_bytes(self) -> int:
        return self.kv_read_bytes + self.kv_write_bytes

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.kv_read_bytes + self.kv_write_bytes

    @property
    def needed_flops(self) -> int:
        """FLOPs that ran minus the padded and the recomputed ones."""
        return self.flops - self.padded_flops - self.recomputed_flops

    @property
    def needed_bytes(self) -> int:
        """Bytes moved minus the padded and the recomputed ones."""
        return self.bytes - self.padded_bytes - self.recomputed_bytes

    @property
    def intensity(self) -> float:
        """FLOP/byte; 0 for a step in which nothing ran."""
        return self.flops / self.bytes if self.bytes else 0.0


def attended_positions(start: int, rows: int) -> int:
    """Sum of p + 1 over the queries at positions start .. start + rows - 1."""
    return rows * start + rows * (rows + 1) // 2


def _sum_work(chunks: Iterable[ChunkWork]) -> tuple[WorkSums, WorkSums, WorkSums]:
    """Sums over all rows that ran, over the padding among them, and over the recomputed ones.

    Runs inside every engine step, hence one loop of plain integers. A chunk that also has fresh
    tokens must read its context for them: then reading it is nobody's loss.
    """
    rows = attended = context = sampled = 0
    pad_rows = pad_attended = pad_context = pad_sampled = 0
    again_rows = again_attended = again_context = 0
    for tokens, start, padding, samples, padded, again in chunks:
        n = tokens + padding
        if not n:
            continue
        seen = n * start + n * (n + 1) // 2
        rows += n
        attended += seen
        context += start + n
        sampled += samples
        if padded:
            pad_rows += n
            pad_attended += seen
            pad_context += start + n
            pad_sampled += samples
        elif padding:
            pad_rows += padding
            pad_attended += seen - attended_positions(start, tokens)
            pad_context += padding
        if again:
            again_rows += again
            again_attended += attended_positions(start, again)
            again_context += start + again if again == tokens else 0
    return (
        WorkSums(rows, attended, context, sampled),
        WorkSums(pad_rows, pad_attended, pad_context, pad_sampled),
        WorkSums(again_rows, again_attended, again_context, 0),
    )


def _weight_bytes(spec: ModelSpec, work: WorkSums, dtype: str, head_dtype: str) -> int:
    """Linears and norms once, the head if any row was sampled, one embedding row per row."""
    if not work.rows:
        return 0
    params = spec.linear_params + spec.norm_params + work.rows * spec.hidden
    head = spec.head_params if work.sampled else 0
    return round(params * dtype_bytes(dtype) + head * dtype_bytes(head_dtype))


def count_step(
    spec: ModelSpec,
    chunks: Iterable[ChunkWork],
    weight_dtype: str,
    kv_dtype: str,
    head_dtype: str | None = None,
) -> StepCost:
    """Count one step exactly; dtypes are keys of DTYPE_BYTES, else ValueError.

    head_dtype: of the LM head, where it is not that of the other weights.
    """
    ran, padding, again = _sum_work(chunks)
    kv_token_bytes = spec.kv_bytes_per_token(dtype_bytes(kv_dtype))
    linear, head = 2 * spec.linear_params, 2 * spec.head_params
    attention = spec.attention_flops_per_position
    return StepCost(
        linear_flops=linear * ran.rows,
        attention_flops=attention * ran.attended,
        head_flops=head * ran.sampled,
        padded_flops=linear * padding.rows + attention * padding.attended + head * padding.sampled,
        weight_bytes=_weight_bytes(spec, ran, weight_dtype, head_dtype or weight_dtype),
        kv_read_bytes=kv_token_bytes * ran.context,
        kv_write_bytes=kv_token_bytes * ran.rows,
        padded_bytes=kv_token_bytes * (padding.context + padding.rows),
        recomputed_flops=linear * again.rows + attention * again.attended,
        recomputed_bytes=kv_token_bytes * (again.context + again.rows),
    )


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Modelled times of a step, seconds; None where the peak is unknown."""

    t_compute_s: float | None
    t_memory_s: float | None
    t_weights_s: float | None
    t_kv_s: float | None

    @property
    def floor_s(self) -> float | None:
        """The least time the step can take: reading and computing overlap."""
        if self.t_compute_s is None or self.t_memory_s is None:
            return None
        return max(self.t_compute_s, self.t_memory_s)


def times(cost: StepCost, peak_flops: float | None, peak_bandwidth: float | None) -> StepTimes:
    """Counts over peaks (FLOP/s, bytes/s)."""
    return StepTimes(
        t_compute_s=_per(cost.flops, peak_flops),
        t_memory_s=_per(cost.bytes, peak_bandwidth),
        t_weights_s=_per(cost.weight_bytes, peak_bandwidth),
        t_kv_s=_per(cost.kv_bytes, peak_bandwidth),
    )


def _per(amount: float, rate: float | None) -> float | None:
    return amount / rate if rate else None


def bound(modelled: StepTimes, t_step_s: float, t_host_s: float) -> str | None:
    """'overhead' if the host took more than half the step, else the larger modelled term."""
    if t_host_s > t_step_s / 2:
        return "overhead"
    if modelled.t_compute_s is None or modelled.t_memory_s is None:
        return None
    return "compute" if modelled.t_compute_s > modelled.t_memory_s else "memory"


def mfu(cost: StepCost, t_step_s: float, peak_flops: float | None) -> float | None:
    """Model FLOPs utilisation: needed FLOPs over what the step's time allows at the peak."""
    return _per(cost.needed_flops, peak_flops and peak_flops * t_step_s)


def mbu(cost: StepCost, t_step_s: float, peak_bandwidth: float | None) -> float | None:
    """Model bandwidth utilisation: needed bytes over what the step's time allows at the peak."""
    return _per(cost.needed_bytes, peak_bandwidth and peak_bandwidth * t_step_s)
