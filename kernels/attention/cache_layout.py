"""Where K and V lie in the vector kernels' cache.

A layer is [kv_heads, pages, 2, 16 * head_dim]: a page holds K, then V, of 16 tokens of one head, as
the matmul tiles read them. K: [dim / pair][token][pair], V: [token / pair][dim][pair], where a pair
is 2 bfloat16 or 1 float32. So the cache is the packed matrix of attention's matmuls and nothing is
copied; and a sequence whose blocks are neighbours is read as one stream.
"""

from __future__ import annotations

PAGE_TOKENS = 16
MAX_QUERIES = 96  # of a task of attention: their scores of a stretch of keys stay in the L2 cache


def page_bytes(head_dim: int, element_bytes: int) -> int:
    """K and V of 16 tokens of one head."""
    return 2 * PAGE_TOKENS * head_dim * element_bytes
