"""What an answer rests on: its formulas with their source, its assumptions, what is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.physics.composition import COMPOSITIONS
from engine.physics.model_spec import dtype_bytes
from engine.physics.whatif_step import kv_token_bytes

if TYPE_CHECKING:
    from engine.physics.whatif import WhatIf

FORMULAS = {
    "t_compute_s": "(2 * N_active * tokens + attention_flops) / peak_flops",
    "t_memory_s": "(weights_read_bytes + kv_moved_bytes) / peak_bandwidth",
    "weight_bytes": "N_total * b",
    "ridge": "peak_flops / peak_bandwidth",
    "intensity": "flops / (weights_read_bytes + kv_moved_bytes)",
    "b_star": "ridge * b/2 * N_total/N_active, KV left out",
    "b_star_with_kv": "the batch with t_compute_s = t_memory_s at this context",
    "single_stream_tokens_per_s": "1 / max(t_compute_s, t_memory_s) at batch 1",
    "e2el_s": "TTFT + (output_tokens - 1) * TPOT",
}


def formulas(w: WhatIf) -> dict[str, str]:
    """How each number is made; names are keys of the answer."""
    return {
        **FORMULAS,
        "t_step_s": f"{COMPOSITIONS[w.composition]} + t_link_s + overhead_s",
        "weights_read_bytes": _weights_words(w),
        "kv_bytes_per_token": _kv_words(w),
    }


def _weights_words(w: WhatIf) -> str:
    spec = w.model.spec
    if spec is not None and spec.moe is not None:
        e, k = spec.moe.experts, spec.moe.experts_per_token
        return (
            f"(N_total - missed experts) * b; of {e} experts a layer {k} a token, so "
            f"{e} * (1 - {k}/{e})^tokens are missed"
        )
    if w.model.active_params < w.model.total_params:
        return "min(N_total, tokens * N_active) * b: experts unknown, this is the most they can be"
    return "N_total * b"


def _kv_words(w: WhatIf) -> str:
    spec, b = w.model.spec, dtype_bytes(w.deployment.kv_dtype)
    if w.kv_bytes_per_token is not None:
        return "given with the question"
    if spec is None:
        return f"unknown: {w.model.unknown}"
    if spec.mla is not None:
        mla = spec.mla
        return f"{spec.layers} layers * ({mla.kv_rank} latent + {mla.rope_dim} rope) * {b:g} bytes"
    return f"2 * {spec.layers} layers * {spec.kv_heads} KV heads * {spec.head_dim} * {b:g} bytes"


def assumptions(w: WhatIf) -> dict[str, Any]:
    """Everything that shapes a number: peaks with their source, fractions, counts of the model."""
    return {
        **w.deployment.assumptions(),
        "total_params": w.model.total_params,
        "active_params": w.model.active_params,
        "model_sources": w.model.sources,
        "matmul_fraction_seen": w.deployment.device.matmul_fraction,
        "usable_memory": w.usable_memory,
        "peaks": "datasheet, dense",
        "floors": "t_compute_s, t_memory_s, ridge, B* and ceilings are at the datasheet's peaks",
    }


def unknown(w: WhatIf) -> list[str]:
    """What no source says, and what is left out for it."""
    missing = []
    if w.model.spec is None:
        missing.append(
            f"{w.model.unknown or 'the shape of the model is unknown'}: attention's FLOPs and exact"
            " counts are left out"
        )
    if kv_token_bytes(w) is None and (w.context or w.phase == "prefill"):
        missing.append("KV cache per token: t_memory_s and t_step_s are floors without it")
    if w.model.spec is None and w.deployment.devices > 1:
        missing.append("time on the links: t_step_s is a floor without it")
    return missing


def notes(w: WhatIf) -> list[str]:
    """What a person should know who reads the numbers."""
    longest, most = w.context + (w.prompt_tokens or 0), w.model.max_context
    if w.phase == "decode":
        longest = max(w.context, w.prompt_tokens or 0)
    if most is None or longest <= most:
        return []
    return [f"{w.model.title} is made for {most:,} tokens, not for {longest:,}"]
