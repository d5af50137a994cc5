"""Rotary position embedding (Su et al. 2021, equation 34), halves rotated as in Llama's code."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3.1's frequency scaling: long wavelengths are stretched by `factor`."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


def _frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> Tensor:
    inverse = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    if scaling is None:
        return inverse
    wavelength = 2 * math.pi / inverse
    turns = scaling.original_max_position / wavelength
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return inverse * keep + inverse / scaling.factor * (1 - keep)


def rope_tables(
    positions: int, head_dim: int, theta: float, dtype: torch.dtype, scaling: RopeScaling | None
) -> tuple[Tensor, Tensor]:
    """cos and signed sin, each [positions, 1, head_dim]: x * cos + swap_halves(x) * sin."""
    freq = _frequencies(head_dim, theta, scaling)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), freq)
    cos, sin = angles.cos(), angles.sin()
    full_cos = torch.cat([cos, cos], -1).to(dtype)
    signed_sin = torch.cat([-sin, sin], -1).to(dtype)
    return full_cos.unsqueeze(1), signed_sin.unsqueeze(1)


def apply_rope_(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate in place. heads: [rows, n, head_dim]; cos, sin: [rows, 1, head_dim]."""
    rows, n, dim = heads.shape
    swapped = heads.view(rows, n, 2, dim // 2).flip(2).view(rows, n, dim)
    heads.mul_(cos).addcmul_(swapped, sin)


def rope_and_cache(
    qkv: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    slots: Tensor,
    cache: Tensor,
    heads: int,
) -> tuple[Tensor, Tensor]:
    """Q and K rotated, K and V in their slots; what is given stays as it is.

    qkv: [rows, heads + 2 * kv_heads, dim]; cos, sin: [max_positions, dim / 2]; positions, slots:
    [rows], a negative slot writes nothing; cache: [slots, 2, kv_heads, dim] -> (qkv, cache).
    """
    turned, stored = qkv.clone(), cache.clone()
    kv_heads = cache.shape[2]
    angles = (table[positions.long()].to(qkv.dtype) for table in (cos, sin))
    c, s = (angle.unsqueeze(1) for angle in angles)
    apply_rope_(turned[:, : heads + kv_heads], torch.cat([c, c], -1), torch.cat([-s, s], -1))
    kept = slots >= 0
    rows = turned[kept, heads:].reshape(-1, 2, kv_heads, qkv.shape[2])
    stored[slots[kept].long()] = rows.to(cache.dtype)
    return turned, stored
