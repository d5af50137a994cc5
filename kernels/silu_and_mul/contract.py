"""What SwiGLU's gate may be given: gate and up side by side in one row."""

from __future__ import annotations

from kernels.contract import Arg, Contract
from kernels.dtypes import FLOATS

CONTRACTS = {
    "silu_and_mul": Contract(
        "silu_and_mul",
        (
            Arg("gate_up", FLOATS, ("rows", "2*dim")),
            Arg("out", FLOATS, ("rows", "dim"), same_as="gate_up", optional=True, written=True),
        ),
    )
}
