"""Decode against a copy's bandwidth, prefill against a matmul's FLOPs, both beside torch's SDPA."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kernels.attention.triton_impl import paged_decode, paged_prefill
from tests.gpu.measure import Bench, element_bytes
from tests.gpu.sections import Row

HEADS, KV_HEADS, DIM, BLOCK = 32, 8, 128, 16
DECODES = tuple((batch, ctx) for ctx in (512, 4096, 32768) for batch in (1, 8, 16, 64, 256))
PREFILLS = ((1, 512), (1, 2048), (1, 8192), (8, 2048))
_SDPA_BYTES = 4 << 30  # a second copy of K and V has to fit
_TINY = ((2, 40),)


def rows(bench: Bench) -> Iterator[Row]:
    decodes, prefills = (_TINY, _TINY) if bench.rehearsal else (DECODES, PREFILLS)
    for batch, context in decodes:
        yield _decode(bench, batch, context, torch.bfloat16)
    for batch, context in prefills:
        yield _prefill(bench, batch, context)
    for batch, context in decodes[5:8]:
        yield _decode(bench, batch, context, torch.float8_e4m3fn)
    yield _mixed(bench)


def _decode(bench: Bench, batch: int, context: int, kv: torch.dtype) -> Row:
    q = bench.random(batch, HEADS, DIM)
    cache, tables = _cache(bench, batch, context, kv)
    contexts = _int32(bench, [context] * batch)
    out = torch.empty_like(q)
    time_s = bench.seconds(lambda: paged_decode(q, cache, tables, contexts, BLOCK, out))
    read = batch * context * 2 * KV_HEADS * DIM * cache.element_size()
    return {
        "name": "paged_decode",
        "shape": f"{batch} x {context}, {str(kv)[6:]} KV",
        "seconds": time_s,
        "bytes": read + 2 * element_bytes(q),
        "flops": 4 * batch * context * HEADS * DIM,
        "sdpa_s": _sdpa(bench, batch, 1, context) if read <= _SDPA_BYTES else None,
    }


def _prefill(bench: Bench, batch: int, context: int) -> Row:
    q = bench.random(batch * context, HEADS, DIM)
    cache, tables = _cache(bench, batch, context, torch.bfloat16)
    starts = _int32(bench, [context * s for s in range(batch + 1)])
    contexts = _int32(bench, [context] * batch)
    out = torch.empty_like(q)
    time_s = bench.seconds(lambda: paged_prefill(q, cache, tables, starts, contexts, BLOCK, out))
    return {
        "name": "paged_prefill",
        "shape": f"{batch} x {context}",
        "seconds": time_s,
        "bytes": 2 * element_bytes(q) + batch * context * 2 * KV_HEADS * DIM * 2,
        "flops": 4 * HEADS * DIM * batch * context * (context + 1) // 2,
        "sdpa_s": _sdpa(bench, batch, context, context),
    }


def _mixed(bench: Bench) -> Row:
    """A chunk of a long prompt beside decodes, one call."""
    chunk, context, decodes = bench.pick(512, 20), bench.pick(8192, 50), bench.pick(64, 2)
    q = bench.random(chunk + decodes, HEADS, DIM)
    cache, tables = _cache(bench, decodes + 1, context, torch.bfloat16)
    starts = _int32(bench, [0, *(chunk + s for s in range(decodes + 1))])
    contexts = _int32(bench, [context] * (decodes + 1))
    out = torch.empty_like(q)
    time_s = bench.seconds(lambda: paged_prefill(q, cache, tables, starts, contexts, BLOCK, out))
    seen = chunk * context - chunk * (chunk - 1) // 2 + decodes * context
    return {
        "name": "paged_prefill",
        "shape": f"chunk of {chunk} at {context} and {decodes} decodes",
        "seconds": time_s,
        "bytes": 2 * element_bytes(q) + (decodes + 1) * context * 2 * KV_HEADS * DIM * 2,
        "flops": 4 * HEADS * DIM * seen,
    }


def _sdpa(bench: Bench, batch: int, queries: int, context: int) -> float | None:
    """The same from contiguous K and V."""
    q = bench.random(batch, HEADS, queries, DIM)
    k, v = (bench.random(batch, KV_HEADS, context, DIM) for _ in range(2))
    causal = queries > 1
    return bench.seconds(
        lambda: scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    )


def _cache(bench: Bench, batch: int, context: int, kv: torch.dtype) -> tuple[Tensor, Tensor]:
    """Blocks in random order."""
    width = -(-context // BLOCK)
    shape = (batch * width * BLOCK, 2, KV_HEADS, DIM)
    if kv.itemsize == 1:  # torch draws no float8; bytes without NaN's pattern
        values = torch.randint(0, 0x70, shape, dtype=torch.uint8, device=bench.device).view(kv)
    else:
        values = bench.random(*shape, dtype=kv)
    order = torch.randperm(batch * width, device=bench.device)
    return values, order.to(torch.int32).view(batch, width)


def _int32(bench: Bench, values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=bench.device)
