"""The largest decode batch within a target of time per token, and the limit that binds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.physics.composition import Terms, compute_s, memory_s
from engine.physics.memory_budget import budget
from engine.physics.sizing import MaxBatch
from engine.physics.whatif_step import field_step

if TYPE_CHECKING:
    from engine.physics.deployment import Deployment
    from engine.physics.whatif import WhatIf

MOST = 1_000_000
_ROUNDING = 1 + 1e-9  # a target that a step meets exactly is met


def largest_batch(w: WhatIf) -> MaxBatch | None:
    """Largest batch whose decode step stays within tpot_slo_s and whose KV fits.

    Without a target only the memory limits. A prefill is asked about the decode that follows it.
    None where nothing limits it below a million, or where the KV cache is unknown.
    """
    ask = decode_after(w)
    limits: dict[str, int | None] = {"capacity": budget(ask).sequences}
    if w.tpot_slo_s is not None:
        limits = {
            "slo_memory": _largest(_within(ask, memory_s)),
            "slo_compute": _largest(_within(ask, compute_s)),
            **limits,
        }
    finite = {name: batch for name, batch in limits.items() if batch is not None}
    if not finite or field_step(ask).kv_bytes is None:
        return None
    limit = min(finite, key=lambda name: finite[name])
    return MaxBatch(finite[limit], limit, limits)


def decode_after(w: WhatIf) -> WhatIf:
    """The decode step at the question's context; after a prefill, at context and prompt."""
    if w.phase == "decode":
        return w
    return replace(w, phase="decode", context=w.context + (w.prompt_tokens or 0))


def _within(
    w: WhatIf, device_s: Callable[[Deployment, Terms, str], float]
) -> Callable[[int], bool]:
    assert w.tpot_slo_s is not None
    target = w.tpot_slo_s * _ROUNDING

    def meets(batch: int) -> bool:
        step = field_step(w, batch)
        roof_s = device_s(w.deployment, step.terms, w.composition)
        return roof_s + (step.t_link_s or 0.0) + step.overhead_s <= target

    return meets


def _largest(meets: Callable[[int], bool]) -> int | None:
    """The last batch that meets it, by halving: time never falls with the batch."""
    if meets(MOST):
        return None
    low, high = 0, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
