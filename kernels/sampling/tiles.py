"""How sampling shares out a row: chunks of the vocabulary, and rounds of the search for top-p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernels.pointwise_tiles import power_of_two

CHUNK = 4096  # logits of one program
WARPS = 8
WAYS = 16  # thresholds that a round tries at once

Kind = Literal["greedy", "temperature", "top_p"]


@dataclass(frozen=True, slots=True)
class Search:
    """lowest: the first threshold, as an ordered key. widths: distance of the thresholds of each
    round; the last is 1, so that the threshold found is exact."""

    lowest: int
    widths: tuple[int, ...]


def chunk_of(vocab: int) -> int:
    """Logits of one program; a power of two."""
    return min(CHUNK, power_of_two(vocab))


def search(bits: int, kind: Kind) -> Search:
    """Rounds over all the keys of logits of 16 or 32 bits; only the first without top-p, which
    weighs everything, and none where every row is greedy."""
    steps = range(bits - 4, -1, -4)
    widths = tuple(1 << step for step in steps)
    rounds = {"greedy": 0, "temperature": 1, "top_p": len(widths)}[kind]
    return Search(-(1 << (bits - 1)), widths[:rounds])
