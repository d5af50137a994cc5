"""How the terms of a step go together: what overlaps with what."""

from __future__ import annotations

from typing import NamedTuple

from engine.physics.deployment import Deployment

COMPOSITIONS = {
    "overlap": "max(t_compute_s / matmul_fraction, t_memory_s / bandwidth_fraction)",
    "additive-kv": "max(t_linear_s / matmul_fraction, t_weights_s / bandwidth_fraction)"
    " + max(t_attention_s / matmul_fraction, t_kv_s / bandwidth_fraction)",
}
"""overlap: everything. additive-kv: attention waits for its cache while nothing else runs, as in
Austin et al., How to Scale Your Model (the JAX scaling book), 2025, chapter 7."""


class Terms(NamedTuple):
    """Times of a step's parts at the datasheet's peaks, seconds."""

    linear_s: float
    attention_s: float
    weights_s: float
    kv_s: float


def composed_s(d: Deployment, terms: Terms, composition: str) -> float:
    """Device time of a step at the stated fractions of the peaks, without link and overhead."""
    linear_s, attention_s = (t / d.matmul_fraction for t in terms[:2])
    weights_s, kv_s = (t / d.bandwidth_fraction for t in terms[2:])
    if composition == "overlap":
        return max(linear_s + attention_s, weights_s + kv_s)
    return max(linear_s, weights_s) + max(attention_s, kv_s)


def memory_s(d: Deployment, terms: Terms, composition: str) -> float:
    """The same if the linear layers' math were free: what reading alone asks for."""
    if composition == "overlap":
        return (terms.weights_s + terms.kv_s) / d.bandwidth_fraction
    return composed_s(d, terms._replace(linear_s=0.0), composition)


def compute_s(d: Deployment, terms: Terms, composition: str) -> float:
    """The same if reading the weights were free: what computing asks for."""
    if composition == "overlap":
        return (terms.linear_s + terms.attention_s) / d.matmul_fraction
    return composed_s(d, terms._replace(weights_s=0.0), composition)
