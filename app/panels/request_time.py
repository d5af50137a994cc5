"""Where the time of a request went, and what it would have taken alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.figures.data import known, records
from app.figures.plane import Decode, Peaks
from app.units import count, three
from engine.physics.roofline import decode_compute_time_s, decode_memory_time_s

LEAST_LIKE = 5


@dataclass(frozen=True, slots=True)
class Alone:
    """A decode step of one sequence by itself: measured, else modelled, else unknown.

    measured_s: median of n steps at batch 1. ratio: measured time over floor of decode-only steps,
    by which the floor of a step at batch 1 is lengthened.
    """

    measured_s: float | None
    n: int
    decode: Decode | None
    peaks: Peaks | None
    ratio: float | None

    @classmethod
    def of(cls, found: dict[str, Any], decode: Decode | None, peaks: Peaks | None) -> Alone:
        """found: from `queries.requests.step_alone`."""
        n = int(found.get("alone_n") or 0)
        measured = known(found.get("alone_s")) if n >= LEAST_LIKE else None
        enough = int(found.get("ratio_n") or 0) >= LEAST_LIKE
        return cls(measured, n, decode, peaks, known(found.get("ratio")) if enough else None)

    @property
    def source(self) -> str:
        """Where step_s comes from, in words."""
        if self.measured_s is not None:
            return f"{count(self.n)} steps at batch 1"
        if self.decode and self.peaks and self.ratio:
            return f"cost model at batch 1, × {three(self.ratio)} as measured"
        return "unknown: no step at batch 1, and no model of one"

    def step_s(self, context: float) -> float | None:
        """One token with so many before it."""
        if self.measured_s is not None:
            return self.measured_s
        if self.decode is None or self.peaks is None or self.ratio is None:
            return None
        at = self.decode.model, 1, context
        compute = decode_compute_time_s(*at, self.peaks.flops)
        return max(compute, decode_memory_time_s(*at, self.peaks.bandwidth)) * self.ratio

    def prefill_s(self, own_prefill_s: float | None, prompt: int) -> float | None:
        """Its own part of the steps that computed its prompt; at least as long as one step."""
        step = self.step_s(prompt)
        own = known(own_prefill_s)
        return None if step is None or own is None else max(own, step)

    def decode_s(self, prompt: int, output: int) -> float | None:
        """All tokens after the first."""
        step = self.step_s(prompt + output / 2)
        return None if step is None else max(output - 1, 0) * step

    def total_s(self, own_prefill_s: float | None, prompt: int, output: int) -> float | None:
        """E2EL without anybody else; None before its prompt is computed, or where unknown."""
        prefill, decode = self.prefill_s(own_prefill_s, prompt), self.decode_s(prompt, output)
        return prefill + decode if prefill is not None and decode is not None and output else None


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds of a request's life by cause; they sum to it. base_s: a step without prompts.

    others: prompts of others, in its own steps and in those it had no part in. lost: pushed out
    and computed again. held: in the batch without a part, while nobody's prompt ran.
    """

    queue: float
    own: float
    others: float
    decode: float
    lost: float
    held: float
    base_s: float | None

    @property
    def total(self) -> float:
        return self.queue + self.own + self.others + self.decode + self.lost + self.held


def split(queue_s: float, slices: pd.DataFrame) -> Split:
    """slices: from `queries.requests.slices`, from its admission to its end."""
    base = _base(slices)
    spent = {"own": 0.0, "others": 0.0, "decode": 0.0, "lost": 0.0, "held": 0.0}
    for row in records(slices):
        for name, seconds in _causes(row, base):
            spent[name] += seconds
    return Split(queue_s, **spent, base_s=base)


def _base(slices: pd.DataFrame) -> float | None:
    """Median of its own steps in which nobody's prompt ran; else of all such; else unknown."""
    plain = slices[slices["others_tokens"] == 0]
    for like in (plain[plain["phase"] == "decode"], plain[plain["decode_only"]]):
        if len(like) >= LEAST_LIKE:
            return float(like["slice_s"].median())
    return None


def _causes(row: dict[str, Any], base: float | None) -> list[tuple[str, float]]:
    seconds, others = float(row["slice_s"]), float(row["others_tokens"])
    phase = row["phase"]
    if phase in ("prefill", "recompute"):
        share = float(row["tokens"]) / (float(row["tokens"]) + others)
        mine = "own" if phase == "prefill" else "lost"
        return [(mine, seconds * share), ("others", seconds * (1 - share))]
    if phase == "decode":
        longer = max(0.0, seconds - base) if others and base is not None else 0.0
        return [("decode", seconds - longer), ("others", longer)]
    if row["next_phase"] == "recompute":
        return [("lost", seconds)]
    return [("others" if others else "held", seconds)]
