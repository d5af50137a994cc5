"""How much fits and how fast it can be: KV room, batch for a target, waste of static batching."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.physics.roofline import DecodeModel


def kv_bytes_per_token(
    layers: int, kv_heads: int, head_dim: int, bytes_per_element: float
) -> float:
    """KV cache of one token, bytes: keys and values of every layer (GQA and MHA)."""
    return 2 * layers * kv_heads * head_dim * bytes_per_element


def kv_bytes(per_token_bytes: float, tokens: int) -> float:
    """KV cache of `tokens` tokens, bytes."""
    return per_token_bytes * tokens


def kv_capacity_bytes(
    memory_bytes: float, weight_bytes: float, reserve_bytes: float = 0.0
) -> float:
    """Memory left for the KV cache, bytes; 0 where the weights alone do not fit."""
    return max(0.0, memory_bytes - weight_bytes - reserve_bytes)


def static_wasted_slot_step_fraction(output_tokens: Sequence[int], slots: int) -> float:
    """Share of slot-steps in which static batching emits nothing.

    Requests form cohorts of `slots` in order; a cohort runs until its longest output ends. Slots
    that the last cohort leaves empty are wasted too.
    """
    if slots < 1 or not output_tokens or min(output_tokens) < 1:
        raise ValueError("static waste needs 1 slot or more and outputs of 1 token or more")
    cohorts = [output_tokens[i : i + slots] for i in range(0, len(output_tokens), slots)]
    slot_steps = slots * sum(max(cohort) for cohort in cohorts)
    return 1 - sum(output_tokens) / slot_steps


@dataclass(frozen=True, slots=True)
class MaxBatch:
    """The largest batch within a target and what binds it.

    limit: slo_memory, slo_compute or capacity; limits: the batch that each alone would allow,
    None for one that never binds (no KV).
    """

    batch: int
    limit: str
    limits: dict[str, int | None]


def max_batch_for_tpot(
    model: DecodeModel,
    context: float,
    tpot_slo_s: float,
    peak_flops: float,
    bandwidth: float,
    memory_bytes: float,
    reserve_bytes: float = 0.0,
) -> MaxBatch:
    """Largest decode batch whose step stays within tpot_slo_s and whose KV fits.

    Batch 0: not even one sequence is possible, and `limit` says why.
    """
    per_sequence = model.sequence_bytes(context)
    room = kv_capacity_bytes(memory_bytes, model.weight_bytes, reserve_bytes)
    limits = {
        "slo_memory": _fit(tpot_slo_s * bandwidth - model.weight_bytes, per_sequence),
        "slo_compute": _fit(tpot_slo_s * peak_flops, model.sequence_flops(context)),
        "capacity": _fit(room, per_sequence),
    }
    if memory_bytes < model.weight_bytes + reserve_bytes:
        limits["capacity"] = 0
    finite = {name: batch for name, batch in limits.items() if batch is not None}
    limit = min(finite, key=lambda name: finite[name])
    return MaxBatch(finite[limit], limit, limits)


def _fit(room: float, each: float) -> int | None:
    """How many fit; None where each takes nothing. 1e-9 forgives the rounding of the inputs."""
    if room < 0:
        return 0
    return math.floor(room / each + 1e-9) if each else None
