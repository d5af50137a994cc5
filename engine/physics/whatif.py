"""What one model step costs on a device: the question, and its answer in full. SI units, no torch.

The field's arithmetic: weights are N_total · b, a token computes 2 · N_active FLOPs, and reading
overlaps with computing. `answer` also counts the same step exactly and shows where the two differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import UserError, unknown
from engine.physics import whatif_parts as parts
from engine.physics import whatif_stated as stated
from engine.physics.composition import COMPOSITIONS
from engine.physics.sentences import sentences
from engine.physics.whatif_step import field_step

if TYPE_CHECKING:
    from engine.physics.catalogue import CatalogueModel
    from engine.physics.deployment import Deployment

PHASES = ("decode", "prefill")
MAX_BATCH = 1_000_000
MAX_TOKENS = 100_000_000


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One question: a step of `batch` sequences of a model on a deployment.

    context: tokens of each sequence in the KV cache before the step. phase 'decode': one new token
    per sequence; 'prefill': prompt_tokens new ones per sequence. price_per_hour: of one device.
    composition: a key of composition.COMPOSITIONS. usable_memory: the share of memory that weights
    and KV cache may fill.
    kv_bytes_per_token: takes the place of what the model's shape says, or fills in where it is
    unknown. output_tokens: length of an answer, for its end-to-end latency.
    Raises UserError for a number or a name that cannot be.
    """

    model: CatalogueModel
    deployment: Deployment
    batch: int = 1
    context: int = 0
    phase: str = "decode"
    prompt_tokens: int | None = None
    tpot_slo_s: float | None = None
    price_per_hour: float | None = None
    composition: str = "overlap"
    usable_memory: float = 1.0
    kv_bytes_per_token: float | None = None
    output_tokens: int | None = None

    def __post_init__(self) -> None:
        _check_name("phase", self.phase, PHASES)
        _check_name("composition", self.composition, tuple(COMPOSITIONS))
        _check_count("batch", self.batch, 1, MAX_BATCH, "sequences")
        _check_count("context", self.context, 0, MAX_TOKENS, "tokens")
        if self.phase == "prefill" and self.prompt_tokens is None:
            raise UserError("a prefill needs a prompt: give prompt tokens, such as 4096")
        if self.prompt_tokens is not None:
            _check_count("prompt tokens", self.prompt_tokens, 1, MAX_TOKENS, "tokens")
        if self.output_tokens is not None:
            _check_count("output tokens", self.output_tokens, 1, MAX_TOKENS, "tokens")
        _check_positive("TPOT target", self.tpot_slo_s, "seconds")
        _check_positive("price per hour", self.price_per_hour, "in any currency")
        _check_positive("KV bytes per token", self.kv_bytes_per_token, "bytes")
        if not 0 < self.usable_memory <= 1:
            raise UserError(
                f"usable memory is {self.usable_memory:g}: use a share over 0 and at most 1"
            )


def _check_name(kind: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise unknown(kind, name, known)


def _check_count(name: str, value: int, least: int, most: int, unit: str) -> None:
    if not least <= value <= most:
        raise UserError(f"{name} is {value:,}: use {least} to {most:,} {unit}")


def _check_positive(name: str, value: float | None, unit: str) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise UserError(f"{name} is {value:g}: use more than 0 {unit}")


def answer(w: WhatIf) -> dict[str, Any]:
    """Everything that follows from the question, ready for JSON. SI units; None is unknown.

    Times of parts are at the datasheet's peaks, t_step_s at the stated fractions with link and
    overhead. `exact` is the same step counted from its batch; `formulas` and `assumptions` say
    what each number came from; `sentences` say it in words. Raises UserError.
    """
    step = field_step(w)
    found = {
        **parts.question(w),
        **parts.counts_and_times(w, step),
        **parts.crossing(w, step),
        **parts.room(w),
        **parts.speeds(w),
        **parts.sizing(w),
        "exact": parts.exact(w, step),
        "prefill": parts.prefill(w),
        "speed_ups": parts.speed_ups(w, step),
        "prices": parts.prices(w),
        "composition": w.composition,
        "formulas": stated.formulas(w),
        "assumptions": stated.assumptions(w),
        "unknown": stated.unknown(w),
        "notes": stated.notes(w),
    }
    return {**found, "sentences": sentences(found)}
