"""What the weight-only matmuls may be given. The weight's dtype says which: int8, or int4 pairs."""

from __future__ import annotations

from kernels.contract import Arg, Contract, ContractChoice, Rule
from kernels.dtypes import FLOATS

MAX_ROWS = 16
"""From there on the weights are no longer what the matmul waits for: a dense matmul is faster."""

_FEW_ROWS = Rule(
    f"x has {{rows}} rows, must have at most {MAX_ROWS}: use a dense matmul for more",
    lambda sizes, given: sizes["rows"] <= MAX_ROWS,
)
_X = Arg("x", FLOATS, ("rows", "k"))
_OUT = Arg("out", FLOATS, ("rows", "n"), same_as="x", optional=True, written=True)
_SCALES = ("float32", "float16", "bfloat16")

_INT8 = Contract(
    "quantised_linear",
    (_X, Arg("weight", ("int8",), ("n", "k")), Arg("scales", _SCALES, ("n",)), _OUT),
    rules=(_FEW_ROWS,),
)
_INT4 = Contract(
    "quantised_linear",
    (
        _X,
        Arg("weight", ("uint8",), ("n", "k/2")),
        Arg("scales", _SCALES, ("n", "k/32")),
        Arg("minimums", _SCALES, ("n", "k/32"), same_as="scales"),
        _OUT,
    ),
    rules=(_FEW_ROWS,),
)

CONTRACTS = {
    "quantised_linear": ContractChoice(
        "quantised_linear", "weight", {"int8": _INT8, "uint8": _INT4}
    )
}
