"""What the router and the experts' matmul may be given.

The router's integers are two families. What says which expert (topk_indices, and the hash tables
read to fill it) is read by one pointer type: they must agree. token_expert_indices is int32,
whatever those are: no one dtype fits all four.
"""

from __future__ import annotations

from kernels.contract import Arg, Contract, Rule
from kernels.dtypes import FLOATS

INDICES = ("int64", "int32")

_HASH = ("input_tokens", "hash_indices_table")
_BOTH_OR_NONE = Rule(
    "input_tokens and hash_indices_table come together: pass both for hash routing, or none",
    lambda sizes, given: len(given.intersection(_HASH)) != 1,
)
_ENOUGH_EXPERTS = Rule(
    "k is {k}, must be at most the {experts} experts of logits: ask for fewer",
    lambda sizes, given: sizes["k"] <= sizes["experts"],
)
_ROWS_OR_SLOTS = Rule(
    "x has {x_rows} rows, must have {rows} (one a token) or {rows} times {k} (one a token's slot): "
    "pass one of those",
    lambda sizes, given: sizes["x_rows"] in (sizes["rows"], sizes["rows"] * sizes["k"]),
)

CONTRACTS = {
    "router": Contract(
        "router",
        (
            Arg("logits", FLOATS, ("rows", "experts")),
            Arg("topk_weights", ("float32",), ("rows", "k"), optional=True, written=True),
            Arg("topk_indices", INDICES, ("rows", "k"), optional=True, written=True),
            Arg("token_expert_indices", ("int32",), ("rows", "k"), optional=True, written=True),
            Arg("input_tokens", INDICES, ("rows",), same_as="topk_indices", optional=True),
            Arg(
                "hash_indices_table", INDICES, ("vocab", "k"), same_as="topk_indices", optional=True
            ),
        ),
        sizes=("k",),
        rules=(_BOTH_OR_NONE, _ENOUGH_EXPERTS),
    ),
    "grouped_matmul": Contract(
        "grouped_matmul",
        (
            Arg("x", FLOATS, ("x_rows", "inner")),
            Arg("weights", FLOATS, ("experts", "outer", "inner"), same_as="x"),
            Arg("topk_indices", INDICES, ("rows", "k")),
            Arg("topk_weights", ("float32",), ("rows", "k"), optional=True),
            Arg("out", FLOATS, ("rows*k", "outer"), same_as="x", optional=True, written=True),
        ),
        rules=(_ROWS_OR_SLOTS,),
    ),
}
