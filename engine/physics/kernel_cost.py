"""FLOPs and bytes of each kernel of a step, so counted that they add up to the step's own.

As in `cost`: matrix products and attention have FLOPs; norms, rotation and gating have none that
anyone counts. Bytes are weights and KV; activations stay in caches and are left out.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

from engine.physics.cost import StepCost
from engine.physics.model_spec import ModelSpec, dtype_bytes

KERNELS = (
    *("embedding", "rms_norm", "qkv_linear", "rope_and_cache", "attention", "out_linear"),
    *("gate_up_linear", "silu_and_mul", "down_linear", "lm_head"),
)
"""In the order in which a layer runs them. A source may run some of them as one."""


class KernelWork(NamedTuple):
    """Of all calls in one step; None: not counted."""

    flops: int | None
    bytes: int | None


def count_kernels(
    spec: ModelSpec, cost: StepCost, weight_dtype: str, head_dtype: str | None = None
) -> dict[str, KernelWork]:
    """Of a step that `cost.count_step` counted with these dtypes. ValueError unless the model is
    dense with plain attention."""
    if spec.moe is not None or spec.mla is not None or spec.window is not None:
        raise ValueError(f"{spec.name} is not a dense model with plain attention")
    rows = cost.linear_flops // (2 * spec.linear_params)
    linears = {name: spec.layers * size for name, size in _matrices(spec).items()}
    weights = _weight_bytes(spec, cost, linears, rows, weight_dtype, head_dtype or weight_dtype)
    work = {name: KernelWork(None, size) for name, size in weights.items()}
    work |= {n: KernelWork(2 * size * rows, weights[n]) for n, size in linears.items()}
    work["lm_head"] = KernelWork(cost.head_flops, weights["lm_head"])
    work["attention"] = KernelWork(cost.attention_flops, cost.kv_read_bytes)
    work["rope_and_cache"] = KernelWork(None, cost.kv_write_bytes)
    work["silu_and_mul"] = KernelWork(None, None)
    return work


def _matrices(spec: ModelSpec) -> dict[str, int]:
    """Weights of one layer by linear kernel: hidden x outputs each."""
    q, kv = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    widths = {
        "qkv_linear": q + 2 * kv,
        "out_linear": q,
        "gate_up_linear": 2 * spec.intermediate,
        "down_linear": spec.intermediate,
    }
    return {name: spec.hidden * width for name, width in widths.items()}


def _weight_bytes(
    spec: ModelSpec,
    cost: StepCost,
    linears: dict[str, int],
    rows: int,
    dtype: str,
    head_dtype: str,
) -> dict[str, int]:
    """Whole bytes, rounded where the running sum is, so that all add up to the step's."""
    width = dtype_bytes(dtype)
    head = spec.head_params * dtype_bytes(head_dtype) if cost.head_flops else 0.0
    parts = {"embedding": rows * spec.hidden * width, "rms_norm": spec.norm_params * width}
    parts |= {name: size * width for name, size in linears.items()} | {"lm_head": head}
    sums = pairwise(round(total) for total in accumulate(parts.values(), initial=0.0))
    return {name: end - start for name, (start, end) in zip(parts, sums, strict=True)}
