"""Philox4x32-10, a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy
as 1, 2, 3", table 2): the numbers are a function of key and counter, and nothing is kept."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def philox(key: tuple[Tensor, Tensor], counter: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Two key words and four counter words -> four random words, all int64 in 0..2^32 - 1."""
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for _ in range(ROUNDS):
        (high0, low0), (high1, low1) = _product(_MULTIPLIERS[0], c0), _product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seeds: Tensor, steps: Tensor) -> Tensor:
    """Numbers in [0, 1), whole multiples of 2^-24, float32. Key: the seed, counter: the step.

    seeds: int64, steps: int32, of one shape.
    """
    zero = torch.zeros_like(seeds)
    key = (seeds & _WORD, (seeds >> 32) & _WORD)
    word = philox(key, (steps.to(torch.int64) & _WORD, zero, zero, zero))[0]
    return (word >> 8).to(torch.float32) * 2.0**-24


def _product(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """High and low word of a * b, by halves of b, since int64 has no room for 64 bits unsigned."""
    low, high = a * (b & 0xFFFF), a * (b >> 16)
    middle = (low >> 16) + high  # below 2^49
    return (middle >> 16) & _WORD, ((middle << 16) | (low & 0xFFFF)) & _WORD
