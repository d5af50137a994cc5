"""The parts of a what-if's answer, each a dict of the JSON that the command prints."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from engine.physics.max_batch import decode_after, largest_batch
from engine.physics.memory_budget import NARROWER, budget, what_would_fit
from engine.physics.roofline import (
    crossover_batch,
    crossover_batch_with_kv,
    end_to_end_latency_s,
    ridge_intensity,
)
from engine.physics.whatif_step import (
    Step,
    decode_model,
    exact_step,
    field_step,
    kv_token_bytes,
)

if TYPE_CHECKING:
    from engine.physics.whatif import WhatIf

LENGTHS = tuple(2**n for n in range(7, 18))
UNLIMITED = "nothing limits them below a million"


def question(w: WhatIf) -> dict[str, Any]:
    """What was asked, in the names that the answer goes by."""
    d = w.deployment
    return {
        "model": w.model.name,
        "title": w.model.title,
        "device": d.device.name,
        "device_title": d.device.title,
        "devices": d.devices,
        "tensor_parallel": d.tensor_parallel,
        "expert_parallel": d.expert_parallel,
        "dtype": d.weight_dtype,
        "kv_dtype": d.kv_dtype,
        "math_dtype": d.math_dtype,
        "phase": w.phase,
        "batch": w.batch,
        "context": w.context,
        "prompt_tokens": w.prompt_tokens,
        "decode_context": decode_after(w).context,
        "total_params": w.model.total_params,
        "active_params": w.model.active_params,
    }


def counts_and_times(w: WhatIf, step: Step) -> dict[str, Any]:
    """Counts and times of a step; the same keys by the field's arithmetic and counted exactly."""
    names = ("t_compute_s", "t_memory_s", "t_weights_s", "t_kv_s", "t_link_s", "overhead_s")
    return {
        **{name: getattr(step, name) for name in (*names, "t_step_s")},
        "flops": step.flops,
        "attention_flops": step.attention_flops,
        "weights_read_bytes": step.weight_bytes,
        "kv_moved_bytes": step.kv_bytes,
        "intensity": step.intensity,
        "tokens_per_s": step.tokens_per_s,
        "bound": step.bound,
    }


def crossing(w: WhatIf, step: Step) -> dict[str, Any]:
    """Ridge and B*, at the datasheet's peaks."""
    d, model = w.deployment, decode_model(decode_after(w))
    reachable = d.peak_flops * d.matmul_fraction, d.bandwidth * d.bandwidth_fraction
    return {
        "ridge": ridge_intensity(d.peak_flops, d.bandwidth),
        "ridge_reachable": ridge_intensity(*reachable),
        "memory_over_compute": step.t_memory_s / step.t_compute_s,
        "b_star": crossover_batch(model, d.peak_flops, d.bandwidth),
        **_with_kv(w),
    }


def _with_kv(w: WhatIf) -> dict[str, Any]:
    ask, d = decode_after(w), w.deployment
    if ask.context and kv_token_bytes(ask) is None:
        return {"b_star_with_kv": None, "b_star_with_kv_reason": "the KV cache is unknown"}
    found = crossover_batch_with_kv(decode_model(ask), ask.context, d.peak_flops, d.bandwidth)
    return {"b_star_with_kv": found.batch, "b_star_with_kv_reason": found.reason}


def room(w: WhatIf) -> dict[str, Any]:
    """Memory: what is needed, whether it fits, and what would."""
    memory = budget(w)
    return {
        "weight_bytes": memory.weight_bytes,
        "kv_bytes_per_token": kv_token_bytes(w),
        "kv_bytes": memory.kv_bytes,
        "fits": memory.fits,
        "memory": memory.to_json(),
        "would_fit": [asdict(fit) for fit in what_would_fit(w)],
    }


def speeds(w: WhatIf) -> dict[str, Any]:
    """One conversation's ceiling, floors of TPOT and TTFT, and a whole answer's latency.

    Floors are at the datasheet's peaks. ttft_floor_s: None where no prompt was asked about.
    """
    alone, first = field_step(decode_after(w), 1), _prompt_step(w)
    return {
        "single_stream_tokens_per_s": 1 / alone.floor_s,
        "single_step_s": alone.t_step_s,
        "tpot_floor_s": alone.floor_s,
        "ttft_floor_s": first.floor_s if first else None,
        "output_tokens": w.output_tokens,
        "e2el_s": _whole_s(w, first),
    }


def _prompt_step(w: WhatIf) -> Step | None:
    """The prefill of one prompt by itself."""
    if w.prompt_tokens is None:
        return None
    return field_step(replace(w, phase="prefill", batch=1))


def _whole_s(w: WhatIf, first: Step | None) -> float | None:
    """Steps like the question's all along: the context's growth is left out."""
    if first is None or w.output_tokens is None:
        return None
    tpot_s = field_step(decode_after(w)).t_step_s
    return end_to_end_latency_s(first.t_step_s, tpot_s, w.output_tokens)


def sizing(w: WhatIf) -> dict[str, Any]:
    """The largest batch for the target and for the memory, and the limit that binds."""
    found = largest_batch(w)
    unknown = decode_after(w).context and kv_token_bytes(w) is None
    return {
        "tpot_slo_s": w.tpot_slo_s,
        "max_batch": found.batch if found else None,
        "max_batch_limit": found.limit if found else None,
        "max_batch_limits": found.limits if found else {},
        "max_batch_reason": None if found else "the KV cache is unknown" if unknown else UNLIMITED,
    }


def exact(w: WhatIf, step: Step) -> dict[str, Any] | None:
    """The step counted from its batch, and its time over the field's; None without a shape."""
    counted = exact_step(w)
    if counted is None:
        return None
    return {**counts_and_times(w, counted), "t_step_over_field": counted.t_step_s / step.t_step_s}


def speed_ups(w: WhatIf, step: Step) -> list[dict[str, Any]]:
    """The same step with weights, or weights and KV cache, in fewer bytes."""
    rows = []
    for dtype in NARROWER:
        for kv_dtype in dict.fromkeys((w.deployment.kv_dtype, "fp8")):
            d = replace(w.deployment, weight_dtype=dtype, kv_dtype=kv_dtype)
            t_step_s = field_step(replace(w, deployment=d)).t_step_s
            names = {"dtype": dtype, "kv_dtype": kv_dtype, "t_step_s": t_step_s}
            rows.append({**names, "speed_up": step.t_step_s / t_step_s})
    return rows


def prefill(w: WhatIf) -> dict[str, Any] | None:
    """One prompt by itself: the linear layers' time and attention's, which grows with its square.

    None where no prompt was asked about. Times of parts at the datasheet's peaks. over_length: the
    same for powers of two, as far as the model's context goes.
    """
    if w.prompt_tokens is None:
        return None
    lengths = [n for n in LENGTHS if n <= (w.model.max_context or LENGTHS[-1])]
    return {
        **_prompt_parts(w, w.prompt_tokens),
        "over_length": [_prompt_parts(w, n) for n in lengths],
    }


def _prompt_parts(w: WhatIf, tokens: int) -> dict[str, Any]:
    step = field_step(replace(w, phase="prefill", batch=1, prompt_tokens=tokens))
    return {
        "prompt_tokens": tokens,
        "t_linear_s": step.terms.linear_s,
        "t_quadratic_s": step.terms.attention_s,
        "t_compute_s": step.t_compute_s,
        "t_memory_s": step.t_memory_s,
        "t_step_s": step.t_step_s,
        "tokens_per_s": step.tokens_per_s,
    }


def prices(w: WhatIf) -> dict[str, Any] | None:
    """Price of a million tokens while the devices run such steps only; None without a price."""
    if w.price_per_hour is None:
        return None
    per_s = w.price_per_hour * w.deployment.devices / 3600
    decode = field_step(decode_after(w))
    prompt = prefill(w)
    output = per_s / decode.tokens_per_s * 1e6
    given = None if prompt is None else per_s / prompt["tokens_per_s"] * 1e6
    return {
        "price_per_device_hour": w.price_per_hour,
        "per_million_output_tokens": output,
        "per_million_input_tokens": given,
        "output_over_input": None if given is None else output / given,
    }
