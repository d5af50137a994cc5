"""What rotation with the write of K and V may be given.

The cache has the model's dtype or fp8. Tables are fp32: they are read once a row and cost nothing.
"""

from __future__ import annotations

from kernels.contract import Arg, Contract
from kernels.dtypes import CACHE, FLOATS, FP8
from kernels.grouped_heads import WHOLE_GROUPS

CONTRACTS = {
    "rope_and_cache": Contract(
        "rope_and_cache",
        (
            Arg("qkv", FLOATS, ("rows", "heads + 2*kv_heads", "dim"), written=True),
            Arg("positions", ("int32",), ("rows",)),
            Arg("cos", ("float32",), ("max_positions", "dim/2")),
            Arg("sin", ("float32",), ("max_positions", "dim/2")),
            Arg("slots", ("int32",), ("rows",)),
            Arg(
                "cache",
                CACHE,
                ("cache_slots", 2, "kv_heads", "dim"),
                same_as="qkv",
                unless=FP8,
                written=True,
            ),
        ),
        sizes=("heads",),
        rules=(WHOLE_GROUPS,),
    )
}
