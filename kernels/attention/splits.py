"""Into how many parts a decode's contexts are split, so that few long sequences fill a GPU.

A rule instead of a measurement: the same inputs give the same split, and with it the same bits.
It knows the longest context that a block table has room for, not the contexts, which only the
device knows; the kernel shares out what there is, in parts of at least `least` tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

RESIDENT = 2  # programs that one processor holds: shared memory allows two of decode's tiles
MAX_PARTS = 128
MAX_TILES = 128  # of one program: a long sequence among short ones does not keep all waiting
BUSY_TILES = 16  # least of a part where the sequences alone fill the GPU
_START = 2.0  # tiles' time that a program takes to start, to fill its buffers and to end
_PARTIAL = 0.5  # more where its result is a part: written and read again in fp32


@dataclass(frozen=True, slots=True)
class Split:
    """parts: programs per context and KV head; least: tiles of keys that each takes at least."""

    parts: int
    least: int


@lru_cache(maxsize=4096)
def split(sequences: int, kv_heads: int, tiles: int, processors: int) -> Split:
    """sequences x kv_heads: programs of one part. tiles: of the longest context, in tiles of keys.

    Of 1 to MAX_PARTS parts that with the shortest modelled step, the smallest such number.
    """
    programs = sequences * kv_heads
    most = max(1, min(tiles, MAX_PARTS))
    fewest = min(most, -(-tiles // MAX_TILES))
    parts = min(
        range(fewest, most + 1), key=lambda n: modelled_tiles(programs, tiles, n, processors)
    )
    return Split(parts, BUSY_TILES if programs >= processors * RESIDENT else 1)


def modelled_tiles(programs: int, tiles: int, parts: int, processors: int) -> float:
    """Length of a step in tiles' time, all contexts being equally long: rounds of programs."""
    rounds = -(-programs * parts // (processors * RESIDENT))
    own = -(-tiles // parts) + _START + (_PARTIAL if parts > 1 else 0.0)
    return rounds * own
