"""What sampling may be given. Logits may be a slice of wider rows, as of a padded vocabulary."""

from __future__ import annotations

from kernels.contract import Arg, Contract
from kernels.dtypes import FLOATS

CONTRACTS = {
    "sample": Contract(
        "sample",
        (
            Arg("logits", FLOATS, ("rows", "vocab"), layout="rows"),
            Arg("temperature", ("float32",), ("rows",)),
            Arg("top_p", ("float32",), ("rows",)),
            Arg("seeds", ("int64",), ("rows",)),
            Arg("steps", ("int32",), ("rows",)),
            Arg("out", ("int64",), ("rows",), optional=True, written=True),
        ),
    )
}
