"""Attention over a paged KV cache."""

from kernels.attention.reference import chunk_attention, decode_attention, kv_views

__all__ = ["chunk_attention", "decode_attention", "kv_views"]
