"""Grouped-query attention (Ainslie et al. 2023) over a paged KV cache (Kwon et al. 2023).

The cache of a layer is [slots, 2, kv_heads, head_dim]: one row holds K and V of one token. Query
heads that share a KV head are folded into the query length, since repeating K and V for them is
3 to 40 times slower on a CPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

QUERY_BLOCK = 256  # rows of queries per matmul: the score matrix then stays in the cache


def kv_views(rows: Tensor) -> tuple[Tensor, Tensor]:
    """[batch, context, 2, kv_heads, dim] -> K and V, each [batch, kv_heads, context, dim]."""
    return rows[:, :, 0].transpose(1, 2), rows[:, :, 1].transpose(1, 2)


def decode_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """One query a sequence.

    q: [batch, heads, dim]; k, v: [batch, kv_heads, context, dim]; mask: [batch, 1, 1, context],
    True where the context is real, or None -> [batch, heads * dim].
    """
    batch, heads, dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.view(batch, kv_heads, heads // kv_heads, dim)
    out = functional.scaled_dot_product_attention(grouped, k, v, attn_mask=mask)
    return out.reshape(batch, heads * dim)


def chunk_attention(q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
    """Queries of one sequence at positions start, start + 1, … over its context.

    q: [rows, heads, dim]; k, v: [kv_heads, start + rows, dim] -> [rows, heads * dim].
    """
    rows, heads, dim = q.shape
    kv_heads = k.shape[0]
    grouped = q.view(rows, kv_heads, heads // kv_heads, dim).permute(1, 2, 0, 3)
    blocks = [
        _causal_block(grouped[:, :, at : at + QUERY_BLOCK], k, v, start + at)
        for at in range(0, rows, QUERY_BLOCK)
    ]
    out = blocks[0] if len(blocks) == 1 else torch.cat(blocks, 2)
    return out.permute(2, 0, 1, 3).reshape(rows, heads * dim)


def _causal_block(q: Tensor, k: Tensor, v: Tensor, first: int) -> Tensor:
    """q: [kv_heads, group, rows, dim] at positions first… -> the same shape."""
    kv_heads, group, rows, dim = q.shape
    end = first + rows
    scores = torch.bmm(q.reshape(kv_heads, group * rows, dim), k[:, :end].transpose(1, 2))
    scores = scores.mul_(1 / math.sqrt(dim)).view(kv_heads, group, rows, end)
    # Only the last `rows` columns hold keys that some of these queries must not see.
    future = torch.ones(rows, rows, dtype=torch.bool).triu_(1)
    scores[..., first:].masked_fill_(future, float("-inf"))
    weights = torch.softmax(scores, -1).view(kv_heads, group * rows, end)
    return torch.bmm(weights, v[:, :end]).view(kv_heads, group, rows, dim)


def paged_attention(
    q: Tensor, cache: Tensor, block_tables: Tensor, starts: Tensor, contexts: Tensor,
    block_size: int,
) -> Tensor:  # fmt: skip
    """Causal attention of sequences of any number of new tokens over a paged cache.

    q: [rows, heads, dim], the sequences' rows one after another from starts[s] on; cache: [slots,
    2, kv_heads, dim]; block_tables: [sequences, max_blocks]; row i of a sequence stands at
    contexts[s] - rows + i and sees positions up to its own -> [rows, heads, dim]. A sequence
    without context, which pads a batch, gives zeros.
    """
    out = torch.zeros_like(q)
    for sequence, context in enumerate(contexts.tolist()):
        begin, end = starts[sequence : sequence + 2].tolist()
        if context == 0 or begin == end:
            continue
        tokens = torch.arange(context, device=q.device)
        blocks = block_tables[sequence].long()[tokens // block_size]
        rows = cache[blocks * block_size + tokens % block_size]
        k, v = kv_views(rows[None])
        found = chunk_attention(q[begin:end], k[0], v[0], context - (end - begin))
        out[begin:end] = found.view(end - begin, *q.shape[1:])
    return out
