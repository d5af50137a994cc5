"""Tiles of the kernels that only stream rows: sizes chosen so that every load is 128 bits wide.

A thread that holds 8 adjacent elements of 16 bits loads them at once (two loads in fp32), so a tile
has 8 elements for each of its threads where its rows are long enough. A static table, no autotune.
"""

from __future__ import annotations

from dataclasses import dataclass

ELEMENTS = 8  # adjacent ones of a thread
LANES = {"gfx942": 64}  # of a warp, where it is not 32
WARP_SIZES = (("sm_80", "sm_90", "sm_100"), ("gfx942",))  # targets whose tiles are the same
TILE = 1024  # elements of a program whose rows are shorter


@dataclass(frozen=True, slots=True)
class RowTile:
    """rows x columns elements for one program of so many warps; columns is a power of two."""

    rows: int
    columns: int
    warps: int


def power_of_two(n: int) -> int:
    """The smallest power of two that is not less than n, for n >= 1."""
    return 1 << (n - 1).bit_length()


def warps_for(elements: int, arch: str) -> int:
    """Warps that hold ELEMENTS of a tile in each thread, from 1 to those of 1024 threads."""
    lanes = LANES.get(arch, 32)
    return max(1, min(1024 // lanes, elements // (ELEMENTS * lanes)))


def whole_rows(columns: int, arch: str) -> RowTile:
    """Whole rows for one program: as many short ones as fill TILE, else one."""
    width = power_of_two(columns)
    rows = max(1, TILE // width)
    return RowTile(rows, width, warps_for(rows * width, arch))
