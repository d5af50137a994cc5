"""What devices that share a model spend exchanging activations."""

from __future__ import annotations

from engine.physics.model_spec import ModelSpec

ACTIVATION_BYTES = 2
"""Activations travel in bf16."""


def ring_all_reduce_s(size_bytes: float, devices: int, link_bandwidth: float) -> float:
    """Each device sends 2 (n − 1)/n of the data (Patarasuk & Yuan 2009), seconds; no latency."""
    return 2 * (devices - 1) / devices * size_bytes / link_bandwidth


def all_to_all_s(sent_bytes: float, devices: int, link_bandwidth: float) -> float:
    """Each device sends `sent_bytes`, all but its own share to others, seconds; no latency."""
    return (devices - 1) / devices * sent_bytes / link_bandwidth


def link_time_s(
    spec: ModelSpec,
    rows: int,
    tensor_parallel: int,
    expert_parallel: int,
    link_bandwidth: float | None,
) -> float:
    """Seconds of a step of `rows` rows on links of so many bytes/s per direction.

    Tensor parallel: two ring all-reduces of every row a layer, after attention and after the MLP
    (Megatron-LM, 2019). Expert parallel: rows go to their experts and back, two all-to-alls a
    layer with experts, each row once per expert. ValueError without a link where one is needed.
    """
    if tensor_parallel == expert_parallel == 1:
        return 0.0
    if not link_bandwidth:
        raise ValueError("several devices need a link bandwidth")
    row_bytes = spec.hidden * ACTIVATION_BYTES
    group_bytes = rows / expert_parallel * row_bytes
    reduce_s = ring_all_reduce_s(group_bytes, tensor_parallel, link_bandwidth)
    total_s = 2 * spec.layers * reduce_s
    if spec.moe is not None:
        sent = group_bytes / tensor_parallel * spec.moe.experts_per_token
        total_s += 2 * spec.moe_layers * all_to_all_s(sent, expert_parallel, link_bandwidth)
    return total_s
