"""SwiGLU's gate on sixteen values (Shazeer 2020, equation 6)."""

from __future__ import annotations

from typing import Any

from numba import njit

from kernels.simd.vectors import add, div, exp, fill, mul, sub


@njit(nogil=True, error_model="numpy")
def silu_and_mul_vector(gate: Any, up: Any) -> Any:
    """silu(gate) * up."""
    return mul(div(gate, add(fill(1.0), exp(sub(fill(0.0), gate)))), up)
