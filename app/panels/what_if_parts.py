"""From an answer to the figures of the What-if page: pieces of bars, memory, curves, points."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from app.figures.anatomy import Segment
from app.figures.budget import Budget
from app.figures.phases import Point
from app.figures.plane import Decode, Peaks
from app.units import percent, si
from engine.physics.max_batch import decode_after
from engine.physics.roofline import Crossover
from engine.physics.whatif import WhatIf
from engine.physics.whatif_step import Step, decode_model, field_step, kv_token_bytes

LAST_BATCH = 1024
_LENGTHS = [2 ** (i / 2) for i in range(12, 41)]  # 64 to 1M tokens
Answer = dict[str, Any]


def pieces(a: Answer) -> list[Segment]:
    """The bars of one step: reading, computing, and the step where it is longer than both."""
    out = [_piece("read", "weights", 0.0, a["t_weights_s"], "memory")]
    if a["t_kv_s"]:
        out.append(_piece("read", "KV", a["t_weights_s"], a["t_kv_s"], "cached"))
    out += _math(a)
    longest = max(a["t_memory_s"], a["t_compute_s"])
    return out + (_step(a) if a["t_step_s"] > longest * 1.001 else [])


def _piece(
    row: str, part: str, start_s: float, length_s: float, role: str, below: bool = False
) -> Segment:
    return Segment(row, part, start_s * 1e3, length_s * 1e3, role, below)


def _math(a: Answer) -> list[Segment]:
    """A prompt's attention grows with its square: it has its own piece."""
    total = a["t_compute_s"]
    attention = total * a["attention_flops"] / a["flops"]
    if a["phase"] == "decode" or not attention:
        return [_piece("math", "math", 0.0, total, "compute")]
    linear = total - attention
    return [
        _piece("math", "linear layers", 0.0, linear, "compute"),
        _piece("math", "attention", linear, attention, "compute"),
    ]


def _step(a: Answer) -> list[Segment]:
    """floor | below roof | links | overhead, as on the Live page."""
    role = _longer(a["t_compute_s"], a["t_memory_s"])
    out: list[Segment] = []
    end = 0.0
    for part, length, fill, below in _step_parts(a, role):
        if length > 0:
            out.append(_piece("step", part, end, length, fill, below))
            end += length
    return out


def _step_parts(a: Answer, role: str) -> list[tuple[str, float, str, bool]]:
    link, host = a["t_link_s"] or 0.0, a["overhead_s"]
    if a["composition"] == "additive-kv":
        known = _one_after_the_other(a)
    else:
        known = [("floor", max(a["t_compute_s"], a["t_memory_s"]), role, False)]
    rest = a["t_step_s"] - link - host - sum(part[1] for part in known)
    below = rest if rest > 1e-6 * a["t_step_s"] else 0.0
    tail = [("below roof", below, role, True), ("links", link, "padding", False)]
    return [*known, *tail, ("overhead", host, "overhead", False)]


def _one_after_the_other(a: Answer) -> list[tuple[str, float, str, bool]]:
    """The linear layers with the weights, then attention with its cache."""
    attention = a["t_compute_s"] * a["attention_flops"] / a["flops"]
    linear, kv = a["t_compute_s"] - attention, a["t_kv_s"] or 0.0
    return [
        ("floor", max(linear, a["t_weights_s"]), _longer(linear, a["t_weights_s"]), False),
        ("attention", max(attention, kv), "compute" if attention > kv else "cached", False),
    ]


def _longer(compute_s: float, memory_s: float) -> str:
    return "compute" if compute_s > memory_s else "memory"


def captions(a: Answer, w: WhatIf) -> dict[str, str]:
    """What each bar divides by what."""
    d = w.deployment
    moved = a["weights_read_bytes"] + (a["kv_moved_bytes"] or 0.0)
    return {
        "read": f"{si(moved, 'B')} ÷ {si(d.bandwidth, 'B/s')}",
        "math": f"{si(a['flops'], 'FLOP')} ÷ {si(d.peak_flops, 'FLOP/s')}",
        "step": _step_caption(w),
    }


def _step_caption(w: WhatIf) -> str:
    d = w.deployment
    if w.composition == "additive-kv":
        return "linear layers, then attention"
    if d.matmul_fraction < 1 or d.bandwidth_fraction < 1:
        return f"at {percent(d.bandwidth_fraction)} and {percent(d.matmul_fraction)}"
    return "with links" if d.devices > 1 else "with overhead"


def memory(a: Answer) -> Budget:
    """Where the memory of all devices goes."""
    m = a["memory"]
    return Budget(
        weights=m["weight_bytes"],
        kv=m["kv_bytes"],
        activations=m["activation_bytes"],
        usable=m["usable_bytes"],
        capacity=m["memory_bytes"],
    )


def peaks(w: WhatIf) -> Peaks:
    """The roofs of all devices together."""
    return Peaks(w.deployment.peak_flops, w.deployment.bandwidth, "datasheet")


def decode(w: WhatIf) -> Decode | None:
    """The decode of the roofline's KV cap; after a prefill, at context and prompt. None where the
    KV cache is unknown."""
    ask = decode_after(w)
    if kv_token_bytes(ask) is None:
        return None
    return Decode(decode_model(ask), ask.context)


def crossing(a: Answer) -> Crossover:
    """B* with the KV cache, else the reason why there is none."""
    return Crossover(a["b_star_with_kv"], a["b_star_with_kv_reason"])


def batch_curves(w: WhatIf) -> pd.DataFrame:
    """Times and place of a decode step over batch: see `app.figures.batch_cost`."""
    ask = decode_after(w)
    batches = sorted({round(2 ** (i / 4)) for i in range(41)})
    rows = [_batch_row(batch, field_step(ask, batch)) for batch in batches]
    return pd.DataFrame(rows, dtype=float)  # None becomes NaN


def _batch_row(batch: int, step: Step) -> dict[str, float | None]:
    return {
        "batch": batch,
        "weights_s": step.t_weights_s,
        "memory_s": None if step.t_kv_s is None else step.t_memory_s,
        "compute_s": step.t_compute_s,
        "step_s": step.t_step_s,
        "intensity": step.intensity,
        "achieved_flops": step.flops / step.t_step_s,
    }


def prompt_curves(w: WhatIf) -> pd.DataFrame:
    """Times of a prefill over the length of its prompts: see `app.figures.prompt_cost`."""
    most = w.model.max_context or 131_072
    lengths = [round(n) for n in _LENGTHS if n <= max(most, w.prompt_tokens or 0) * 1.01]
    ask = replace(w, phase="prefill")
    rows = [_prompt_row(replace(ask, prompt_tokens=n)) for n in lengths]
    return pd.DataFrame(rows, dtype=float)


def _prompt_row(w: WhatIf) -> dict[str, float | None]:
    step = field_step(w)
    attention = step.attention_flops / w.deployment.peak_flops
    return {
        "tokens": w.prompt_tokens,
        "linear_s": step.t_compute_s - attention,
        "attention_s": None if w.model.spec is None else attention,
        "read_s": step.t_memory_s,
        "step_s": step.t_step_s,
    }


def points(w: WhatIf) -> list[Point]:
    """The decode of this batch, and a prefill of one such prompt."""
    ask = decode_after(w)
    prompts = w if w.phase == "prefill" else replace(w, phase="prefill", batch=1, context=0)
    several = f"{prompts.batch:,} × " if prompts.batch > 1 else ""
    return [
        _point("decode", f"decode, batch {w.batch:,}", field_step(ask), w.phase == "decode"),
        _point(
            "prefill",
            f"prefill, {several}{prompts.prompt_tokens:,} tokens",
            field_step(prompts),
            w.phase == "prefill",
        ),
    ]


def _point(phase: str, text: str, step: Step, chosen: bool) -> Point:
    return Point(phase, text, step.intensity, step.flops / step.t_step_s, chosen)
