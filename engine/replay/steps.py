"""Recorded steps as columns: what they ran and how long they took."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from telemetry.schema import PHASES

Floats = NDArray[np.float64]


class Work(NamedTuple):
    """What a step's time depends on. Counts as in telemetry.schema.StepRecord.

    matmul_flops: of the linear layers and the LM head. kv_bytes: read and written. sequences:
    those in the batch, padding included. rows: tokens that ran, padding included.
    """

    phase: str
    matmul_flops: float
    weight_bytes: float
    attention_flops: float
    kv_bytes: float
    sequences: float
    rows: float


@dataclass(frozen=True, slots=True)
class Steps:
    """n recorded steps in order; every array is [n]. phase: index into telemetry.schema.PHASES.

    held_up: whether the operating system took the engine's core away while it ran.
    """

    phase: NDArray[np.int64]
    matmul_flops: Floats
    weight_bytes: Floats
    attention_flops: Floats
    kv_bytes: Floats
    sequences: Floats
    rows: Floats
    forward_s: Floats
    host_s: Floats
    held_up: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.phase)

    @property
    def step_s(self) -> Floats:
        return self.forward_s + self.host_s

    def where(self, chosen: NDArray[Any]) -> Steps:
        """Those chosen by a mask or by indices."""
        return replace(self, **{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def of_phase(self, phase: str) -> Steps:
        return self.where(self.phase == PHASES.index(phase))
