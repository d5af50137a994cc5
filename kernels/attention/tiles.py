"""Launch parameters of the Triton kernels: a static table, so that nothing is tuned at start-up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kernels.pointwise_tiles import power_of_two

BYTES_FOR_FP8 = frozenset({"sm_80", "sm_86", "sm_87"})  # no e4m3 before compute capability 8.9
# Matrix instructions of warpgroups or blocks, and 227 KB of shared memory; others have 99 and more.
WARPGROUPS = frozenset({"sm_90", "sm_100", "sm_103"})
LEAST_ROWS = 16  # of a matrix instruction's left side


@dataclass(frozen=True, slots=True)
class Tiles:
    """rows: queries x heads of one KV head; keys: tokens of the cache per iteration."""

    rows: int
    keys: int
    warps: int
    stages: int

    def options(self) -> dict[str, int]:
        return {"num_warps": self.warps, "num_stages": self.stages}


def decode_tiles(arch: str, element_bytes: int, dim: int, group: int) -> Tiles:
    """element_bytes: of a query. One token of each sequence, all heads of a KV head in one tile."""
    rows = max(LEAST_ROWS, power_of_two(group))
    row_bytes = power_of_two(dim) * element_bytes
    keys = max(16, min(64, 64 * 256 // row_bytes))
    if arch.startswith("gfx"):
        return Tiles(rows, keys, 4, 2)
    return Tiles(rows, keys, 8 if element_bytes > 2 else 4, 3)


def prefill_tiles(arch: str, element_bytes: int, dim: int, group: int) -> Tiles:
    """Shared memory holds the queries and `stages` tiles of keys and of values.

    A warpgroup's matrix instruction takes 64 rows, so 128 rows are two of them (sm_90) or one
    of a whole block (sm_100). fp32 runs on plain FMAs, whose operands fill the registers. A group
    of more heads than rows has as many rows as it needs.
    """
    if element_bytes > 2:
        tiles = _fp32_tiles(arch)
    elif power_of_two(dim) > 128:
        tiles = _wide_tiles(arch)
    elif arch.startswith("gfx"):
        tiles = Tiles(128, 32, 4, 2)
    elif arch in WARPGROUPS:
        tiles = Tiles(128, 64, 8, 3)
    else:
        tiles = Tiles(128, 32, 8, 3) if dim > 64 else Tiles(64, 64, 4, 3)
    return replace(tiles, rows=max(tiles.rows, power_of_two(group)))


def _fp32_tiles(arch: str) -> Tiles:
    if arch.startswith("gfx"):
        return Tiles(32, 16, 4, 2)
    return Tiles(32, 16, 8, 2) if arch in WARPGROUPS else Tiles(16, 16, 4, 2)


def _wide_tiles(arch: str) -> Tiles:
    """Heads of more than 128 elements: the accumulator takes half of the registers."""
    if arch in WARPGROUPS:
        return Tiles(64, 32, 4, 3)
    return Tiles(64, 32, 4 if arch.startswith("gfx") else 8, 2)


def attention_constants(
    heads: int, kv_heads: int, dim: int, block_size: int, tiles: Tiles
) -> dict[str, Any]:
    """What decode and prefill are compiled for."""
    return {
        "HEADS": heads,
        "KV_HEADS": kv_heads,
        "DIM": dim,
        "WIDTH": power_of_two(dim),
        "BLOCK_SIZE": block_size,
        "ROWS": tiles.rows,
        "KEYS": tiles.keys,
    }


def reduce_constants(heads: int, dim: int, tiles: Tiles, parts: int) -> dict[str, Any]:
    """What the kernel that joins the parts of decode is compiled for."""
    return {
        "HEADS": heads,
        "DIM": dim,
        "WIDTH": power_of_two(dim),
        "KEYS": tiles.keys,
        "PARTS": power_of_two(parts),
    }


def reduce_options(parts: int) -> dict[str, int]:
    """A thread holds a column of the parts: more warps for many."""
    return {"num_warps": 8 if parts > 32 else 4, "num_stages": 1}
