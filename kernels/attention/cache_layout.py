"""Where K and V lie in the vector kernels' cache.

A page holds 16 tokens of one layer, all KV heads: for each head its K, then its V, as the matmul
tiles read them. K: [dim / pair][token][pair], V: [token / pair][dim][pair], where a pair is 2
bfloat16 or 1 float32. So the cache is the packed matrix of attention's matmuls: nothing is copied.
"""

from __future__ import annotations

PAGE_TOKENS = 16


def head_bytes(head_dim: int, element_bytes: int) -> int:
    """K and V of one head in one page."""
    return 2 * PAGE_TOKENS * head_dim * element_bytes


def page_bytes(kv_heads: int, head_dim: int, element_bytes: int) -> int:
    return kv_heads * head_bytes(head_dim, element_bytes)
