"""Launch parameters of the Triton kernels: a static table, so that nothing is tuned at start-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.pointwise_tiles import power_of_two

BYTES_FOR_FP8 = frozenset({"sm_80", "sm_86", "sm_87"})  # no e4m3 before compute capability 8.9
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
    wide = power_of_two(dim) * element_bytes > 256
    if arch.startswith("gfx"):
        return Tiles(rows, 32 if wide else 64, 4, 2)
    return Tiles(rows, 32 if wide else 64, 4, 3)


def prefill_tiles(arch: str, element_bytes: int, dim: int, group: int) -> Tiles:
    """Shared memory holds the queries and `stages` tiles of keys and of values.

    A warpgroup's matrix instruction takes 64 rows, so 128 rows are two of them (sm_90) or one
    of a whole block (sm_100). fp32 runs on plain FMAs, whose operands fill the registers.
    """
    width = power_of_two(dim)
    if element_bytes > 2:
        rows, warps = (16, 4) if arch in BYTES_FOR_FP8 else (32, 4 if arch.startswith("gfx") else 8)
        return Tiles(max(rows, power_of_two(group)), 16, warps, 2)
    if arch.startswith("gfx"):
        return Tiles(128, 64 if width <= 64 else 32, 4, 2)
    if arch in BYTES_FOR_FP8:
        return Tiles(128, 32, 8, 3) if width > 64 else Tiles(64, 64, 4, 3)
    return Tiles(128, 64, 8, 3)


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
