"""How far a kernel may be from its float64 reference."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# torch.testing.assert_close's relative defaults (pytorch.org/docs/stable/testing.html).
BASE = {torch.float32: 1.3e-6, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}
# Rounding to the nearest float8 alone is off by up to half a spacing, 2^-(mantissa bits + 1).
ROUNDING = {torch.float8_e4m3fn: 2.0**-4, torch.float8_e5m2: 2.0**-3}
FREE_TERMS = 256
"""A sum of this many terms is within the base tolerance.

Adding n random terms one by one in float32 leaves an error that grows with the square root of n:
about 0.7 * eps * sqrt(n) of the result's root mean square, at the worst of many outputs. 1.3e-6 is
11 eps, which n = 256 reaches.
"""


def tolerance(dtype: torch.dtype, reduced: int, rounded_terms: bool = False) -> float:
    """Largest error of outputs that are sums of `reduced` terms, computed in `dtype`.

    Every kernel here adds in float32 whatever it reads and writes, so what grows with the sum is
    float32's part; rounding inputs and output to 16 bits does not. Where the kernel rounds the
    terms too, each is off by up to half an eps, 0.2 eps as a standard deviation, and so is their
    sum relative to its root mean square: the worst of a million outputs is within one eps.
    """
    growth = max(1.0, math.sqrt(reduced / FREE_TERMS)) - 1
    terms = torch.finfo(dtype).eps if rounded_terms else 0.0
    return BASE[dtype] + terms + BASE[torch.float32] * growth


def allowed(
    dtype: torch.dtype, reduced: int, output: torch.dtype, rounded_terms: bool = False
) -> float:
    """The same for one output tensor: what is stored as float8 is rounded to that as well."""
    return tolerance(dtype, reduced, rounded_terms) + ROUNDING.get(output, 0.0)


def error(found: Tensor, expected: Tensor) -> float:
    """The worst |found - expected| / max(|expected|, root mean square of expected); inf for a NaN
    or an infinity on one side alone.

    Relative where an output is large, and to the scale of the whole tensor where it is small, since
    a sum that cancels is no more exact than its terms. expected: float64.
    """
    got = found.double()
    same = (got == expected) | (got.isnan() & expected.isnan())
    if bool(same.all()):
        return 0.0
    finite = expected[expected.isfinite()]
    scale = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    off = (got - expected).abs() / expected.abs().clamp_min(scale)
    worst = torch.where(same, 0.0, off.nan_to_num(nan=math.inf, posinf=math.inf))
    return float(worst.max())
