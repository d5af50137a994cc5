"""One step of a what-if, twice: by the field's arithmetic, and counted exactly from its batch.

The field: weights N_total · b, 2 · N_active FLOPs a token, and the KV of the context that lies
behind each token. Of a mixture of experts only those are read that the rows are expected to touch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING

from engine.physics.composition import Terms, composed_s, compute_s, memory_s
from engine.physics.cost import ChunkWork, StepCost, count_step
from engine.physics.model_spec import ModelSpec, dtype_bytes
from engine.physics.roofline import DecodeModel

if TYPE_CHECKING:
    from engine.physics.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class Step:
    """Counts of a step over all devices, and its times in seconds.

    Times of parts are at the datasheet's peaks; t_step_s is at the stated fractions of them, with
    link and overhead, and bound names the larger of computing and reading there. kv_bytes, t_kv_s,
    t_link_s are None where unknown: then t_memory_s and t_step_s are floors without them.
    """

    tokens: int
    flops: float
    attention_flops: float
    weight_bytes: float
    kv_bytes: float | None
    t_compute_s: float
    t_memory_s: float
    t_weights_s: float
    t_kv_s: float | None
    t_link_s: float | None
    overhead_s: float
    t_step_s: float
    terms: Terms
    bound: str

    @property
    def intensity(self) -> float:
        """FLOP/byte of what the step computes and moves."""
        return self.flops / (self.weight_bytes + (self.kv_bytes or 0.0))

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.t_step_s

    @property
    def floor_s(self) -> float:
        """The least time the step can take at the datasheet's peaks."""
        return max(self.t_compute_s, self.t_memory_s)


def new_tokens(w: WhatIf) -> int:
    """Tokens that the step computes for each sequence."""
    return (w.prompt_tokens or 1) if w.phase == "prefill" else 1


def kv_token_bytes(w: WhatIf) -> float | None:
    """KV cache of one token over all layers, bytes; None where nobody says what a token takes."""
    if w.kv_bytes_per_token is not None or w.model.spec is None:
        return w.kv_bytes_per_token
    return w.model.spec.kv_bytes_per_token(dtype_bytes(w.deployment.kv_dtype))


def decode_model(w: WhatIf) -> DecodeModel:
    """The closed formulas' model of the whole deployment: for intensity, B* and curves over batch.

    KV counts as often as the devices hold it, and as nothing where it is unknown.
    """
    model, spec = _one_copy(w), w.model.spec
    if spec is None:
        return model
    copies = w.deployment.kv_copies(spec)
    return replace(model, kv_bytes_per_token=model.kv_bytes_per_token * copies)


def _one_copy(w: WhatIf) -> DecodeModel:
    """Parameters as published; KV and attention of the shape, or KV as given."""
    d, model, spec = w.deployment, w.model, w.model.spec
    kv = kv_token_bytes(w) or 0.0
    counts = {"total_params": model.total_params, "active_params": model.active_params}
    if spec is None:
        return DecodeModel(
            **counts, bytes_per_param=dtype_bytes(d.weight_dtype), kv_bytes_per_token=kv
        )
    shaped = DecodeModel.of(spec, d.weight_dtype, d.kv_dtype)
    return replace(shaped, **counts, kv_bytes_per_token=kv)


def field_step(w: WhatIf, batch: int | None = None) -> Step:
    """The step by the field's arithmetic; another batch than the question's for curves."""
    batch = w.batch if batch is None else batch
    attention, kv = _attention(w)
    rows = batch * new_tokens(w)
    cost = _cost(
        linear=2 * w.model.active_params * rows,
        attention=batch * attention,
        weights=_params_read(w, rows) * dtype_bytes(w.deployment.weight_dtype),
        kv=batch * (kv or 0.0),
    )
    return _timed(w, rows, cost, kv is not None)


def exact_step(w: WhatIf) -> Step | None:
    """The step counted from its batch: embedding rows, norms, KV written, the head for sampled
    rows. None where the model's shape is unknown."""
    if w.model.spec is None:
        return None
    chunk = ChunkWork(new_tokens(w), w.context, sampled=1)
    return _timed(w, w.batch * new_tokens(w), _count(w, w.model.spec, chunk, w.batch), True)


def _attention(w: WhatIf) -> tuple[float, float | None]:
    """FLOPs (0 where the heads are unknown) and KV bytes moved (None where unknown), one sequence.

    A decode reads the context behind its token; a prompt attends to itself, reads and writes.
    """
    model = _one_copy(w)
    if w.phase == "decode":
        flops = model.sequence_flops(w.context) - 2 * model.active_params
        known = kv_token_bytes(w) is not None or not w.context
        return flops, model.sequence_bytes(w.context) if known else None
    n = new_tokens(w)
    given = w.kv_bytes_per_token
    moved = None if given is None else given * (w.context + 2 * n)
    if w.model.spec is None:
        return 0.0, moved
    cost = _count(w, w.model.spec, ChunkWork(n, w.context), 1)
    return cost.attention_flops, cost.kv_bytes if given is None else moved


def _params_read(w: WhatIf, rows: int) -> float:
    """Parameters that a step of so many rows reads.

    Where the experts are unknown: all that so many rows can touch at most, rows · N_active.
    """
    spec, total = w.model.spec, w.model.total_params
    if spec is None:
        return min(total, rows * w.model.active_params)
    if spec.moe is None:
        return total
    missed = spec.moe.experts - spec.moe.touched(rows)
    return total - spec.moe_layers * spec.expert_params * missed


def _count(w: WhatIf, spec: ModelSpec, chunk: ChunkWork, batch: int) -> StepCost:
    d = w.deployment
    return count_step(spec, repeat(chunk, batch), d.weight_dtype, d.kv_dtype)


def _cost(linear: float, attention: float, weights: float, kv: float) -> StepCost:
    return StepCost(
        linear_flops=round(linear),
        attention_flops=round(attention),
        head_flops=0,
        padded_flops=0,
        weight_bytes=round(weights),
        kv_read_bytes=round(kv),
        kv_write_bytes=0,
        padded_bytes=0,
    )


def _timed(w: WhatIf, rows: int, cost: StepCost, kv_known: bool) -> Step:
    d = w.deployment
    weights_s, kv_s, link_s = _memory_times(w, rows, cost)
    attention_s = cost.attention_flops / d.peak_flops
    terms = Terms(cost.flops / d.peak_flops - attention_s, attention_s, weights_s, kv_s)
    compute_roof_s, memory_roof_s = compute_s(d, terms, "overlap"), memory_s(d, terms, "overlap")
    device_s = composed_s(d, terms, w.composition)
    return Step(
        tokens=rows,
        flops=cost.flops,
        attention_flops=cost.attention_flops,
        weight_bytes=round(weights_s * d.bandwidth),
        kv_bytes=round(kv_s * d.bandwidth) if kv_known else None,
        t_compute_s=cost.flops / d.peak_flops,
        t_memory_s=weights_s + kv_s,
        t_weights_s=weights_s,
        t_kv_s=kv_s if kv_known else None,
        t_link_s=link_s,
        overhead_s=d.overhead_s,
        t_step_s=device_s + (link_s or 0.0) + d.overhead_s,
        terms=terms,
        bound="compute" if compute_roof_s > memory_roof_s else "memory",
    )


def _memory_times(w: WhatIf, rows: int, cost: StepCost) -> tuple[float, float, float | None]:
    """Seconds of weights, KV and links, with all that several devices hold more than once.

    Without a shape nothing is known to be held twice, and what links take is unknown.
    """
    d, spec = w.deployment, w.model.spec
    if spec is not None:
        times = d.step_times(spec, cost, rows)
        return times.t_weights_s, times.t_kv_s, times.t_link_s
    link_s = 0.0 if d.devices == 1 else None
    return cost.weight_bytes / d.bandwidth, cost.kv_bytes / d.bandwidth, link_s
