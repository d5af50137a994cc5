"""x W^T with weights that stand for q * scale (int8) or q * scale + minimum (int4, GGUF's Q4_1)."""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32  # inputs that share an int4 scale and minimum


def unpack_int4(packed: Tensor) -> Tensor:
    """uint8 [n, k / 2], low nibble first -> uint8 [n, k] in 0..15."""
    return torch.stack([packed & 0xF, packed >> 4], -1).flatten(-2)


def pack_int4(levels: Tensor) -> Tensor:
    """uint8 [n, k] in 0..15 -> [n, k / 2], low nibble first."""
    pairs = levels.view(levels.shape[0], -1, 2)
    return pairs[..., 0] | (pairs[..., 1] << 4)


def dequantised(
    weight: Tensor, scales: Tensor, minimums: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """The weights [n, k] that the stored ones stand for, in `dtype`.

    int8: weight int8 [n, k], scales [n]. int4: weight uint8 [n, k / 2], scales and minimums
    [n, k / 32].
    """
    if minimums is None:
        return weight.to(dtype) * scales.to(dtype)[:, None]
    levels = unpack_int4(weight).to(dtype).view(*scales.shape, GROUP)
    return (levels * scales.to(dtype)[..., None] + minimums.to(dtype)[..., None]).flatten(-2)


def quantised_linear(
    x: Tensor, weight: Tensor, scales: Tensor, minimums: Tensor | None = None
) -> Tensor:
    """x: [rows, k] -> [rows, n] in x's dtype; weights as in `dequantised`."""
    return x @ dequantised(weight, scales, minimums, x.dtype).T
