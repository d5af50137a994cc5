"""One tile of keys of paged attention: what decode and prefill have in common."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def widen(x, like):
    """A tile of the cache in the queries' type. Bytes are e4m3 on devices that have no such type:
    its bits stand in fp16's exponent and mantissa, 2^8 too small."""
    if x.dtype == tl.uint8:
        bits = x.to(tl.uint16)
        half = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True)
        return (half.to(tl.float32) * 256.0).to(like.dtype)
    return x.to(like.dtype)


@triton.jit
def block_ids(table, tokens, end, BLOCK_SIZE: tl.constexpr):
    return tl.load(table + tokens // BLOCK_SIZE, mask=tokens < end, other=0)


@triton.jit
def attend(
    q, cache, ids, tokens, end, positions, scale, top, total, acc,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """One tile of keys for all rows: the new maximum, sum and accumulator.

    MASKED: some of the tile's tokens lie at or past `end`, and are not read at all (what an unused
    row of the cache holds may be NaN), or after a row's position, and weigh nothing.
    """
    lanes = tl.arange(0, WIDTH)
    slots = ids.to(tl.int64) * BLOCK_SIZE + tokens % BLOCK_SIZE
    at = cache + slots[:, None] * (2 * KV_HEADS * DIM) + lanes[None, :]
    if MASKED:
        here = (tokens < end)[:, None] & (lanes < DIM)[None, :]
        k = tl.load(at, mask=here, other=0.0)
        v = tl.load(at + KV_HEADS * DIM, mask=here, other=0.0)
    elif WIDTH > DIM:
        here = (lanes < DIM)[None, :]
        k = tl.load(at, mask=here, other=0.0)
        v = tl.load(at + KV_HEADS * DIM, mask=here, other=0.0)
    else:
        k = tl.load(at)
        v = tl.load(at + KV_HEADS * DIM)
    scores = tl.dot(q, tl.trans(widen(k, q)), input_precision="ieee") * scale
    if MASKED:
        seen = (tokens < end)[None, :] & (tokens[None, :] <= positions[:, None])
        scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    kept = tl.exp2(top - higher)
    weights = tl.exp2(scores - higher[:, None])
    total = total * kept + tl.sum(weights, 1)
    acc = acc * kept[:, None]
    acc = tl.dot(weights.to(q.dtype), widen(v, q), acc, input_precision="ieee")
    return higher, total, acc
