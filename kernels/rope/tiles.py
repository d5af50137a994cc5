"""How many heads of a row one program turns."""

from __future__ import annotations

from kernels.pointwise_tiles import TILE, power_of_two


def heads_of_program(dim: int) -> int:
    """As many heads of `dim` elements as fill a tile with their halves; a power of two."""
    return max(1, TILE // power_of_two(max(dim // 2, 1)))
