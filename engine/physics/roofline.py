"""Roofline arithmetic of decode (Williams et al., Roofline, CACM 2009). SI units, no torch.

Weights are counted as the field does here, N_total · b; exact counts of a step are in `cost`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.physics.model_spec import ModelSpec, dtype_bytes


def ridge_intensity(peak_flops: float, bandwidth: float) -> float:
    """Intensity where compute and memory take equal time, FLOP/byte."""
    return peak_flops / bandwidth


def attainable_flops(intensity: float, peak_flops: float, bandwidth: float) -> float:
    """The roof over an intensity (FLOP/byte), FLOP/s."""
    return min(peak_flops, intensity * bandwidth)


def weight_stream_time_s(total_params: float, bytes_per_param: float, bandwidth: float) -> float:
    """Time to read all weights once, seconds."""
    return total_params * bytes_per_param / bandwidth


def compute_time_s(active_params: float, batch: float, peak_flops: float) -> float:
    """Time of the matmuls of one token for each of `batch` sequences, attention left out."""
    return 2 * active_params * batch / peak_flops


def single_stream_ceiling(total_params: float, bytes_per_param: float, bandwidth: float) -> float:
    """Tokens/s of one conversation if reading the weights were all there is."""
    return bandwidth / (total_params * bytes_per_param)


def end_to_end_latency_s(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """E2EL = TTFT + (N - 1) · TPOT, seconds."""
    return ttft_s + (output_tokens - 1) * tpot_s


def attention_flops_ratio(length_a: int, length_b: int) -> float:
    """Work of score and value matmuls of a full pass at length_b over that at length_a."""
    return (length_b / length_a) ** 2


@dataclass(frozen=True, slots=True)
class DecodeModel:
    """What a decode step costs: the parameters of every formula below.

    attention_flops_per_position is 4 · heads · head_dim · layers; 0 leaves attention's FLOPs out.
    window_share of the layers see at most window_tokens positions. expert_params of the parameters
    are experts, of which a row is expected to leave missed_share unread: 1 − k/E.
    """

    total_params: float
    active_params: float
    bytes_per_param: float
    kv_bytes_per_token: float = 0.0
    attention_flops_per_position: float = 0.0
    window_tokens: float = math.inf
    window_share: float = 0.0
    expert_params: float = 0.0
    missed_share: float = 0.0

    @classmethod
    def of(cls, spec: ModelSpec, weight_dtype: str, kv_dtype: str) -> DecodeModel:
        """The model of a spec with weights and KV cache in these dtypes.

        All experts are read and the active ones computed with; MLA is in its absorbed form.
        """
        return cls(
            total_params=spec.total_params,
            active_params=spec.active_params,
            bytes_per_param=dtype_bytes(weight_dtype),
            kv_bytes_per_token=spec.kv_bytes_per_token(dtype_bytes(kv_dtype)),
            attention_flops_per_position=spec.attention_flops_per_position,
            window_tokens=spec.window.tokens if spec.window else math.inf,
            window_share=spec.window.layers / spec.layers if spec.window else 0.0,
        )

    @property
    def weight_bytes(self) -> float:
        return self.total_params * self.bytes_per_param

    def read_bytes(self, batch: float) -> float:
        """Weights that a step of so many rows is expected to read, bytes.

        All but the experts that none of its rows picks: N_experts · (1 − k/E)^batch (MoE.touched).
        """
        missed: float = self.expert_params * self.missed_share**batch
        return (self.total_params - missed) * self.bytes_per_param

    def seen(self, context: float) -> float:
        """Positions of a context that are attended to, averaged over the layers."""
        out_of_sight = max(0.0, context - self.window_tokens)
        return context - self.window_share * out_of_sight

    def sequence_flops(self, context: float) -> float:
        """FLOPs of one token of one sequence that has `context` tokens behind it."""
        return 2 * self.active_params + self.attention_flops_per_position * self.seen(context)

    def sequence_bytes(self, context: float) -> float:
        """KV that one sequence reads for one token, bytes."""
        return self.kv_bytes_per_token * self.seen(context)


def decode_compute_time_s(
    model: DecodeModel, batch: float, context: float, peak_flops: float
) -> float:
    """t_compute of a decode step at this batch and context, seconds."""
    return batch * model.sequence_flops(context) / peak_flops


def decode_memory_time_s(
    model: DecodeModel, batch: float, context: float, bandwidth: float
) -> float:
    """t_memory of a decode step: the weights it needs once and each sequence's KV, seconds."""
    return (model.read_bytes(batch) + batch * model.sequence_bytes(context)) / bandwidth


def memory_to_compute_ratio(
    model: DecodeModel, batch: float, context: float, peak_flops: float, bandwidth: float
) -> float:
    """t_memory / t_compute, which is ridge / intensity exactly."""
    return decode_memory_time_s(model, batch, context, bandwidth) / decode_compute_time_s(
        model, batch, context, peak_flops
    )


def decode_intensity(model: DecodeModel, batch: float, context: float = 0) -> float:
    """Intensity of a decode step, FLOP/byte; 2/b per sequence at context 0."""
    moved = model.read_bytes(batch) + batch * model.sequence_bytes(context)
    return batch * model.sequence_flops(context) / moved


def intensity_asymptote(model: DecodeModel, context: float) -> float:
    """The intensity that no batch exceeds at this context (the KV cap); inf where KV is free."""
    kv_bytes = model.sequence_bytes(context)
    return model.sequence_flops(context) / kv_bytes if kv_bytes else math.inf


def crossover_batch(model: DecodeModel, peak_flops: float, bandwidth: float) -> float:
    """B* = ridge · b/2 · N_total/N_active, KV left out: where compute overtakes the weights."""
    ridge = ridge_intensity(peak_flops, bandwidth)
    return ridge * model.bytes_per_param / 2 * model.total_params / model.active_params


@dataclass(frozen=True, slots=True)
class Crossover:
    """B* with KV counted: a batch, or None with the reason."""

    batch: float | None
    reason: str | None = None


def crossover_batch_with_kv(
    model: DecodeModel, context: float, peak_flops: float, bandwidth: float
) -> Crossover:
    """Batch where t_compute = t_memory at a context; none where KV grows faster than compute."""
    ridge = ridge_intensity(peak_flops, bandwidth)
    gain = model.sequence_flops(context) - ridge * model.sequence_bytes(context)
    if gain > 0:
        return Crossover(_balance(model, ridge, gain))
    cap = intensity_asymptote(model, context)
    return Crossover(
        None,
        f"at a context of {context:,.0f} tokens each sequence adds KV faster than compute: "
        f"intensity stays under {cap:.3g} FLOP/byte, the ridge is {ridge:.3g}",
    )


def _balance(model: DecodeModel, ridge: float, gain: float) -> float:
    """Batch where gain · batch = ridge · weights read, by bisection where the batch decides those.

    What is read grows ever more slowly with the batch, so there is exactly one.
    """
    low, high = 0.0, ridge * model.weight_bytes / gain
    if not model.expert_params:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        enough = gain * middle >= ridge * model.read_bytes(middle)
        low, high = (low, middle) if enough else (middle, high)
    return high
