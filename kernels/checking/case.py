"""One comparison of a kernel with its float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Values = dict[str, Any]
"""Tensors and plain numbers by the launcher's argument names."""


@dataclass(frozen=True, slots=True)
class Case:
    """What `stepscope kernels check` runs once for a launcher, a dtype and a shape.

    op: the launcher's name. shape: as it is printed. reduced: length of the longest sum behind one
    output number; the tolerance grows with it (see kernels.checking.tolerance).
    inputs: fresh random inputs from a generator, on a device.
    outputs: the tensors to be written, with their initial content; the checker moves them into
    guard-banded memory. What a launcher only allocates starts as NaN; a cache starts with content,
    of which what is not written must stay.
    run: the kernel, from inputs into the given outputs.
    reference: float64 inputs and initial outputs -> expected outputs by name, float64.
    ties: (inputs, outputs found, outputs expected) -> are other integers right too, since the
    float64 scores behind them tie? None: integers compare exactly.
    rounded_terms: what the sum adds was computed by the kernel and rounded to `dtype` for the
    matrix instruction (attention's weights), so the output's own rounding is not the only one.
    """

    op: str
    dtype: torch.dtype
    shape: str
    reduced: int
    inputs: Callable[[torch.Generator, torch.device], Values]
    outputs: Callable[[Values], Values]
    run: Callable[[Values, Values], None]
    reference: Callable[[Values, Values], Values]
    ties: Callable[[Values, Values, Values], bool] | None = None
    rounded_terms: bool = False
