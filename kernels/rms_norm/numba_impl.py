"""RMSNorm of one row (Zhang and Sennrich 2019, equation 4), rounded for the matmul that follows."""

from __future__ import annotations

from typing import Any

from numba import njit

from kernels.simd.vectors import (
    LANES,
    fill,
    fma,
    load_f32,
    mul,
    store_bf16,
    store_f32,
    sum_lanes,
)


@njit(nogil=True, error_model="numpy")
def rms_norm_row(x: int, gain: int, width: int, eps: Any, out: int, out_bf16: int) -> None:
    """x, gain: float32 [width] -> out: bfloat16 or float32 [width]; width a multiple of 16."""
    squares = fill(0.0)
    for i in range(0, width, LANES):
        v = load_f32(x + 4 * i)
        squares = fma(v, v, squares)
    scale = fill((sum_lanes(squares) / width + eps) ** -0.5)
    for i in range(0, width, LANES):
        v = mul(mul(load_f32(x + 4 * i), scale), load_f32(gain + 4 * i))
        if out_bf16:
            store_bf16(out + 2 * i, v)
        else:
            store_f32(out + 4 * i, v)
