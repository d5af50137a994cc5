"""Launch parameters of the router and of the experts' matmul: a static table."""

from __future__ import annotations

from dataclasses import dataclass

SORT_CHUNK = 1024  # places that one expert's program looks at together


@dataclass(frozen=True, slots=True)
class Tiles:
    """rows x columns of the result, from `depth` elements of the inner dimension at a time."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def constants(self) -> dict[str, int]:
        return {"ROWS": self.rows, "COLUMNS": self.columns, "DEPTH": self.depth}

    def options(self) -> dict[str, int]:
        return {"num_warps": self.warps, "num_stages": self.stages}


def matmul_tiles(arch: str, element_bytes: int, places: int, experts: int) -> Tiles:
    """places: rows * k, shared by the experts; few rows of an expert are bound by its weights."""
    each = -(-places // experts)
    amd = arch.startswith("gfx")
    if element_bytes > 2:
        return Tiles(16, 32, 32, 4, 2)
    if each <= 16:
        return Tiles(16, 64, 128, 4, 2 if amd else 4)
    if each <= 64:
        return Tiles(64, 128, 64, 4, 2 if amd else 4)
    return Tiles(128, 128, 64, 8, 2 if amd else 3)


def blocks(places: int, experts: int, rows: int) -> int:
    """Most blocks of rows that the experts can need: each begun block holds a place."""
    return min(places, places // rows + min(experts, places))


def router_options(width: int) -> dict[str, int]:
    """width: experts, as a power of two. A row stays in one warp's registers where it fits."""
    return {"num_warps": 1 if width <= 512 else 4, "num_stages": 1}
