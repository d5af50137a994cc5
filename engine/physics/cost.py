"""The exact cost of one step from its batch: FLOPs and bytes by part, and the times they imply.

Counted is what ran; the padded and the recomputed part apart. Per row the linear layers cost
2 · the linear parameters it is multiplied with; a query at position p attends to p + 1 positions,
or to its window; the LM head runs for sampled rows only. Weights are read once a step, KV once per
sequence and chunk. FLOPs as in Kaplan et al. 2020, section 2.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.physics.amounts import plain_amounts, variant_amounts
from engine.physics.model_spec import ModelSpec, dtype_bytes
from engine.physics.work import ChunkWork, StepWork, WorkSums, sum_work

__all__ = ["ChunkWork", "StepCost", "StepTimes", "bound", "count_step", "mbu", "mfu", "times"]


class StepCost(NamedTuple):
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


def count_step(
    spec: ModelSpec,
    chunks: Iterable[ChunkWork],
    weight_dtype: str,
    kv_dtype: str,
    head_dtype: str | None = None,
    decode_starts: Sequence[int] = (),
) -> StepCost:
    """Count one step exactly; dtypes are keys of DTYPE_BYTES, else ValueError.

    head_dtype: of the LM head, where it is not that of the other weights. decode_starts: positions
    of sequences that each run one sampled token, a cheap way to give those chunks.
    Of a mixture of experts a step reads those that its rows are expected to touch (MoE.touched).
    With MLA single rows attend in the absorbed form and longer chunks in the expanded one.
    """
    if spec.mla is None and spec.window is None:
        work = sum_work(chunks, decode_starts)
        ran, padding, again = plain_amounts(spec, work)
    else:
        work, (ran, padding, again) = variant_amounts(spec, chunks, decode_starts)
    total, padded, repeated = work
    layers, head, width = spec.layers, 2 * spec.head_params, dtype_bytes(weight_dtype)
    token_bytes = spec.kv_bytes_per_token(dtype_bytes(kv_dtype))
    head_width = dtype_bytes(head_dtype) if head_dtype else width
    padded_bytes = token_bytes * padding.layer_reads // layers + token_bytes * padded.rows
    again_bytes = token_bytes * again.layer_reads // layers + token_bytes * repeated.rows
    if spec.moe is not None:
        idle = _idle_expert_bytes(spec, work, width)
        padded_bytes, again_bytes = padded_bytes + idle[0], again_bytes + idle[1]
    return StepCost(
        linear_flops=ran.linear_flops,
        attention_flops=ran.attention_flops,
        head_flops=head * total.sampled,
        padded_flops=padding.linear_flops + padding.attention_flops + head * padded.sampled,
        weight_bytes=_weight_bytes(spec, total, width, head_width),
        kv_read_bytes=token_bytes * ran.layer_reads // layers,
        kv_write_bytes=token_bytes * total.rows,
        padded_bytes=padded_bytes,
        recomputed_flops=again.linear_flops + again.attention_flops,
        recomputed_bytes=again_bytes,
    )


def _weight_bytes(spec: ModelSpec, work: WorkSums, width: float, head_width: float) -> int:
    """Linears and norms once, the head if any row was sampled, one embedding row per row."""
    if not work.rows:
        return 0
    linear = spec.linear_params if spec.moe is None else _touched_params(spec, work.rows)
    params = linear + spec.norm_params + work.rows * spec.hidden
    head = spec.head_params if work.sampled else 0
    return round(params * width + head * head_width)


def _touched_params(spec: ModelSpec, rows: int) -> float:
    """Those of linear_params that so many rows are expected to need."""
    if spec.moe is None:
        return spec.linear_params
    experts = spec.moe_layers * spec.moe.touched(rows)
    return spec.shared_linear_params + experts * spec.expert_params


def _idle_expert_bytes(spec: ModelSpec, work: StepWork, width: float) -> tuple[int, int]:
    """Experts read for padded rows alone, and beyond those for recomputed rows alone, bytes."""
    ran, padding, again = (sums.rows for sums in work)
    real = ran - padding
    levels = [_touched_params(spec, rows) * width for rows in (ran, real, real - again)]
    return round(levels[0] - levels[1]), round(levels[1] - levels[2])


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
