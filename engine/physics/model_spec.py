"""The shape of a dense Llama-family model and the counts that follow from it. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

DTYPE_BYTES: dict[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "int8": 1.0,
    "fp8": 1.0,
    "int4": 0.5,
    "int4_g32": 0.625,
}
"""Bytes per element, scales of quantised formats left out; but int4_g32 is what the engine's int4
reads: groups of 32 with a scale and a minimum in half precision."""


def dtype_bytes(dtype: str) -> float:
    """Bytes per element of a dtype; ValueError names the known ones."""
    try:
        return DTYPE_BYTES[dtype]
    except KeyError:
        known = ", ".join(DTYPE_BYTES)
        raise ValueError(f"unknown dtype {dtype!r}: use one of {known}") from None


@dataclass(frozen=True)
class ModelSpec:
    """A dense decoder: grouped-query attention and a gated MLP (Touvron et al., Llama, 2023).

    `hidden`, `intermediate` and `head_dim` are widths in elements; `vocab` and `max_context` are
    in tokens. Raises ValueError for a shape that no model can have.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied_embeddings: bool
    max_context: int

    def __post_init__(self) -> None:
        sizes = {k: v for k, v in vars(self).items() if k not in ("name", "tied_embeddings")}
        for field, value in sizes.items():
            if value < 1:
                raise ValueError(f"{self.name}: {field} is {value}, use 1 or more")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.name}: {self.heads} query heads do not share {self.kv_heads} KV heads "
                "evenly, use a multiple"
            )

    @cached_property
    def linear_params(self) -> int:
        """Weights of all projections: q, k, v, o, gate, up and down of every layer."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        mlp = 3 * self.hidden * self.intermediate
        return self.layers * (attention + mlp)

    @cached_property
    def head_params(self) -> int:
        """Weights of the LM head, vocab x hidden, read for sampled rows (also where tied)."""
        return self.vocab * self.hidden

    @cached_property
    def norm_params(self) -> int:
        """Weights of the RMS norms: two a layer and the last one."""
        return (2 * self.layers + 1) * self.hidden

    @cached_property
    def total_params(self) -> int:
        """All weights; the embedding table counts once if it is tied to the head."""
        tables = 1 if self.tied_embeddings else 2
        return self.linear_params + self.norm_params + tables * self.head_params

    @cached_property
    def attention_flops_per_position(self) -> int:
        """FLOPs that one query spends on one position of its context, over all layers.

        Scores and values are each a product of head_dim per head: 2 · 2 · heads · head_dim.
        """
        return 4 * self.heads * self.head_dim * self.layers

    def kv_bytes_per_token(self, bytes_per_element: float) -> int:
        """KV cache of one token over all layers, bytes: 2 · layers · kv_heads · head_dim · b."""
        return round(2 * self.layers * self.kv_heads * self.head_dim * bytes_per_element)
