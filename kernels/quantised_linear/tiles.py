"""How a weight-only matmul is shared out: outputs of a program, parts of the inner dimension."""

from __future__ import annotations

from dataclasses import dataclass

OUTPUTS = 128  # of a program: two instructions of 64, for which x is prepared once
WIDTH = 128  # inputs of a step: a cache line of int8, half a line of int4
ROWS = 16  # of x; fewer are filled up, since a matrix instruction takes no fewer
WARPS = 4
STAGES = 4  # steps of weights in the buffer, three of them in flight
PROGRAMS = 264  # two on each processor of an H100 or H200: registers allow no more
LEAST_STEPS = 4  # of a part, so that its pipeline fills
COLUMNS = 1024  # of the kernel that adds the parts


@dataclass(frozen=True, slots=True)
class Split:
    """steps: of a part, each of WIDTH inputs; parts: programs that share a sum."""

    steps: int
    parts: int


def split(n: int, k: int) -> Split:
    """For n outputs over k inputs. A function of the shape alone: a row's sums have one order,
    whatever runs beside it. Each part's result is written and read again in fp32, so there are no
    more than keep the memory busy."""
    steps = -(-k // WIDTH)
    wanted = max(1, PROGRAMS // -(-n // OUTPUTS))
    mine = -(-steps // max(1, min(wanted, steps // LEAST_STEPS)))
    return Split(mine, -(-steps // mine))
