"""Attention at the edges: contexts around a block and a tile, groups and dims that fill neither.

Every row of the cache that no sequence owns, and every row past a context, holds NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.attention.reference import paged_attention
from kernels.attention.splits import Split
from kernels.checking.case import Case, Values

FP8 = torch.float8_e4m3fn
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
EDGES = (1, 15, 16, 17, 129)


@dataclass(frozen=True, slots=True)
class Batch:
    """contexts: tokens of each sequence; rows: how many of them are new (decode: one each)."""

    contexts: tuple[int, ...]
    heads: int
    kv_heads: int
    dim: int
    block_size: int
    rows: tuple[int, ...] = ()
    splits: int | None = None

    def news(self) -> tuple[int, ...]:
        return self.rows or (1,) * len(self.contexts)

    def label(self, cache: torch.dtype | None) -> str:
        what = f"contexts {','.join(map(str, self.contexts))}"
        what += f", new {','.join(map(str, self.rows))}" if self.rows else ""
        what += f", {self.splits} splits" if self.splits else ""
        what += ", fp8 KV" if cache is FP8 else ""
        return f"{self.heads}/{self.kv_heads} x {self.dim}, blocks of {self.block_size}, {what}"


DECODES = (
    Batch(EDGES, 9, 3, 64, 16, splits=1),
    Batch(EDGES, 6, 2, 32, 32, splits=3),
    Batch((0, 1, 64, 130), 7, 1, 80, 16, splits=5),
    Batch((17, 200), 32, 8, 128, 16),
)
MIXES = (
    Batch((15, 129, 1, 17), 9, 3, 64, 16, rows=(15, 1, 1, 16)),
    Batch((33, 100), 6, 2, 32, 32, rows=(33, 60)),
    Batch((129, 16), 7, 1, 80, 16, rows=(20, 16)),
    Batch((70,), 32, 8, 128, 16, rows=(40,)),
)


def cases() -> list[Case]:
    return [
        _case(op, dtype, batch, dtype)
        for op, batches in (("paged_decode", DECODES), ("paged_prefill", MIXES))
        for dtype in FLOATS
        for batch in batches
    ] + [
        _case("paged_decode", torch.bfloat16, DECODES[0], FP8),
        _case("paged_decode", torch.float16, DECODES[2], FP8),
        bytes_case(),
        _case("paged_prefill", torch.bfloat16, MIXES[0], FP8),
        _case("paged_prefill", torch.float16, MIXES[2], FP8),
    ]


def _case(op: str, dtype: torch.dtype, batch: Batch, cache: torch.dtype) -> Case:
    def inputs(generator: torch.Generator, device: torch.device) -> Values:
        return _inputs(batch, dtype, cache, generator, device)

    return Case(
        op=op,
        dtype=dtype,
        shape=batch.label(cache),
        # A score's sum, then the values'; as much again for powers and the running rescaling.
        reduced=2 * (max(batch.contexts) + batch.dim),
        inputs=inputs,
        outputs=lambda values: {"out": torch.full_like(values["q"], float("nan"))},
        run=_decode if op == "paged_decode" else _prefill,
        reference=_reference,
        rounded_terms=dtype is not torch.float32,
    )


def bytes_case() -> Case:
    """fp8 read as bytes, as on devices that have no such type, in the interpreter too."""
    case = _case("paged_decode", torch.bfloat16, DECODES[1], FP8)
    return replace(case, shape=f"{case.shape} as bytes", run=_decode_bytes)


def _inputs(
    batch: Batch, dtype: torch.dtype, cache: torch.dtype, generator: torch.Generator,
    device: torch.device,
) -> Values:  # fmt: skip
    rows, tables = sum(batch.news()), _tables(batch, generator, device)
    q = torch.randn(rows, batch.heads, batch.dim, generator=generator, device=device)
    starts = torch.tensor((0, *batch.news()), device=device).cumsum(0)
    return {
        "q": q.to(dtype),
        "cache": _cache(batch, tables, generator).to(cache),
        "block_tables": tables,
        "starts": starts.to(torch.int32),
        "contexts": torch.tensor(batch.contexts, dtype=torch.int32, device=device),
        "block_size": batch.block_size,
        "splits": batch.splits,
    }


def _tables(batch: Batch, generator: torch.Generator, device: torch.device) -> Tensor:
    """Blocks in random order; entries past a sequence's last block name no block at all."""
    needed = [-(-context // batch.block_size) for context in batch.contexts]
    blocks = torch.randperm(sum(needed) + 2, generator=generator, device=device).to(torch.int32)
    shape = (len(needed), max(needed) + 1)
    tables = torch.full(shape, 2**30, dtype=torch.int32, device=device)
    for sequence, count in enumerate(needed):
        tables[sequence, :count], blocks = blocks[:count], blocks[count:]
    return tables


def _cache(batch: Batch, tables: Tensor, generator: torch.Generator) -> Tensor:
    """NaN but for the tokens of the sequences."""
    blocks = sum(-(-context // batch.block_size) for context in batch.contexts) + 2
    shape = (blocks * batch.block_size, 2, batch.kv_heads, batch.dim)
    cache = torch.full(shape, float("nan"), device=tables.device)
    for sequence, context in enumerate(batch.contexts):
        tokens = torch.arange(context, device=tables.device)
        slots = tables[sequence].long()[tokens // batch.block_size] * batch.block_size
        content = torch.randn(context, *shape[1:], generator=generator, device=tables.device)
        cache[slots + tokens % batch.block_size] = content
    return cache


def _decode(values: Values, out: Values) -> None:
    from kernels.attention.triton_impl import paged_decode

    names = ("q", "cache", "block_tables", "contexts", "block_size", "splits")
    paged_decode(**{name: values[name] for name in names}, out=out["out"])


def _decode_bytes(values: Values, out: Values) -> None:
    from kernels.attention.triton_impl import launch_decode

    names = ("q", "block_tables", "contexts", "block_size")
    cache, plan = values["cache"].view(torch.uint8), Split(values["splits"], 1)
    launch_decode(**{name: values[name] for name in names}, cache=cache, out=out["out"], plan=plan)


def _prefill(values: Values, out: Values) -> None:
    from kernels.attention.triton_impl import paged_prefill

    names = ("q", "cache", "block_tables", "starts", "contexts", "block_size")
    paged_prefill(**{name: values[name] for name in names}, out=out["out"])


def _reference(values: Values, initial: Values) -> Values:
    names = ("q", "cache", "block_tables", "starts", "contexts", "block_size")
    return {"out": paged_attention(*(values[name] for name in names))}
