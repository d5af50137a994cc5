"""Prompts of the recorded lengths: which tokens is not recorded, what they share may be known."""

from __future__ import annotations

from zlib import crc32

from engine.replay.recording import Arrival

_APART = 1 << 32  # token ids that no other text has


def prompt(number: int, arrival: Arrival) -> tuple[int, ...]:
    """Token ids that are equal where the recorded texts were, and nowhere else."""
    tokens: list[int] = []
    for piece in arrival.pieces:
        first = (crc32(piece.name.encode()) >> 1) * _APART  # 64 bits with a sign
        tokens += range(first, first + piece.tokens)
    missing = arrival.prompt_tokens - len(tokens)
    if missing > 0:
        tokens += range(-(number + 1) * _APART, -(number + 1) * _APART + missing)
    return tuple(tokens[: arrival.prompt_tokens])
