"""What paged attention may be given: the model's dtype or fp8 in the cache, int32 addresses.

q may be a slice of wider rows, the q of a fused qkv: only a head's elements must be adjacent.
"""

from __future__ import annotations

from kernels.contract import Arg, Contract, Rule
from kernels.dtypes import CACHE, FLOATS, FP8
from kernels.grouped_heads import WHOLE_GROUPS

_CACHE = Arg("cache", CACHE, ("cache_slots", 2, "kv_heads", "dim"), same_as="q", unless=FP8)
_TABLES = Arg("block_tables", ("int32",), ("seqs", "max_blocks"))
_CONTEXTS = Arg("contexts", ("int32",), ("seqs",))
_WHOLE_BLOCKS = Rule(
    "cache has {cache_slots} slots, must be whole blocks of block_size {block_size}: "
    "allocate a multiple of it",
    lambda sizes, given: sizes["cache_slots"] % sizes["block_size"] == 0,
)
_RULES = (WHOLE_GROUPS, _WHOLE_BLOCKS)


def _q(rows: str) -> Arg:
    return Arg("q", FLOATS, (rows, "heads", "dim"), layout="rows")


def _out(rows: str) -> Arg:
    return Arg("out", FLOATS, (rows, "heads", "dim"), same_as="q", optional=True, written=True)


CONTRACTS = {
    "paged_decode": Contract(
        "paged_decode",
        (_q("seqs"), _CACHE, _TABLES, _CONTEXTS, _out("seqs")),
        sizes=("block_size",),
        rules=_RULES,
    ),
    "paged_prefill": Contract(
        "paged_prefill",
        (
            _q("rows"),
            _CACHE,
            _TABLES,
            Arg("starts", ("int32",), ("seqs + 1",)),
            _CONTEXTS,
            _out("rows"),
        ),
        sizes=("block_size",),
        rules=_RULES,
    ),
}
