"""The shape of a model and the counts that follow from it. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.errors import UserError
from engine.physics.shapes import MLA, MoE, Window

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
    """Bytes per element of a dtype; UserError names the known ones."""
    try:
        return DTYPE_BYTES[dtype]
    except KeyError:
        known = ", ".join(DTYPE_BYTES)
        raise UserError(f"unknown dtype {dtype!r}: use one of {known}") from None


_SIZES = (
    *("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab"),
    "max_context",
)


@dataclass(frozen=True)
class ModelSpec:
    """A decoder: grouped-query attention and a gated MLP (Touvron et al., Llama, 2023).

    `hidden`, `intermediate` and `head_dim` are widths in elements; `vocab` and `max_context` are
    in tokens. `moe`, `mla` and `window` say where the model is not that: experts for the MLP,
    latent attention (kv_heads then plays no part), layers that see a window only. Biases and
    norms of single heads are left out. Raises ValueError for a shape that no model can have.
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
    moe: MoE | None = None
    mla: MLA | None = None
    window: Window | None = None

    def __post_init__(self) -> None:
        for field in _SIZES:
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field} is {getattr(self, field)}, use 1 or more")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.name}: {self.heads} query heads do not share {self.kv_heads} KV heads "
                "evenly, use a multiple"
            )
        self._check_layers()

    def _check_layers(self) -> None:
        dense = self.moe.dense_layers if self.moe else 0
        windowed = self.window.layers if self.window else 0
        if dense > self.layers or windowed > self.layers:
            raise ValueError(
                f"{self.name}: {max(dense, windowed)} of its layers are said to be dense or "
                f"windowed, but it has {self.layers}"
            )
        if self.mla and self.window:
            raise ValueError(f"{self.name}: latent attention with a window is not known here")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ModelSpec:
        """The spec of its own `dataclasses.asdict`, as a run's config holds it."""
        parts = {"moe": MoE, "mla": MLA, "window": Window}
        made = {name: part(**raw[name]) for name, part in parts.items() if raw.get(name)}
        return cls(**{**raw, **made})

    @cached_property
    def moe_layers(self) -> int:
        """Layers that have experts."""
        return self.layers - self.moe.dense_layers if self.moe else 0

    @cached_property
    def expert_params(self) -> int:
        """Weights of one expert of one layer: gate, up and down; 0 without experts."""
        return 3 * self.hidden * self.moe.expert_intermediate if self.moe else 0

    @cached_property
    def router_params(self) -> int:
        """Weights of the routers of all layers: hidden x experts each."""
        return self.moe_layers * self.hidden * self.moe.experts if self.moe else 0

    @cached_property
    def all_expert_params(self) -> int:
        """Weights of every routed expert of every layer."""
        return self.moe_layers * self.moe.experts * self.expert_params if self.moe else 0

    @cached_property
    def linear_params(self) -> int:
        """Weights of all projections and routers of every layer, all experts among them."""
        return self.shared_linear_params + self.all_expert_params

    @cached_property
    def shared_linear_params(self) -> int:
        """Those of linear_params that every row passes whatever its router picks."""
        shared = self.moe.shared_intermediate if self.moe else 0
        dense_layers = self.layers - self.moe_layers
        widths = dense_layers * self.intermediate + self.moe_layers * shared
        return self.layers * self._attention_params + 3 * self.hidden * widths + self.router_params

    @cached_property
    def active_linear_params(self) -> int:
        """Those of linear_params that one row is multiplied with."""
        picked = self.moe.experts_per_token if self.moe else 0
        return self.shared_linear_params + self.moe_layers * picked * self.expert_params

    @property
    def _attention_params(self) -> int:
        if self.mla:
            return self.mla.params(self.hidden, self.heads)
        return 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)

    @cached_property
    def expansion_params(self) -> int:
        """Weights, over all layers, that expand latents into keys and values; 0 without MLA."""
        return self.layers * self.mla.expansion_params(self.heads) if self.mla else 0

    @cached_property
    def head_params(self) -> int:
        """Weights of the LM head, vocab x hidden, read for sampled rows (also where tied)."""
        return self.vocab * self.hidden

    @cached_property
    def norm_params(self) -> int:
        """Weights of the RMS norms: two a layer and the last one; MLA also norms its latents."""
        latents = self.layers * (self.mla.kv_rank + (self.mla.q_rank or 0)) if self.mla else 0
        return (2 * self.layers + 1) * self.hidden + latents

    @cached_property
    def total_params(self) -> int:
        """All weights; the embedding table counts once if it is tied to the head."""
        tables = 1 if self.tied_embeddings else 2
        return self.linear_params + self.norm_params + tables * self.head_params

    @cached_property
    def active_params(self) -> int:
        """The weights that one token uses: all but the experts that it is not sent to."""
        return self.total_params - self.linear_params + self.active_linear_params

    @cached_property
    def attention_flops_per_position(self) -> int:
        """FLOPs that one decoding query spends on one position of its context, over all layers.

        Scores and values are each a product of head_dim per head: 2 · 2 · heads · head_dim. With
        MLA they are of the absorbed form. Windows are left to those who know the context.
        """
        if self.mla:
            return self.layers * self.mla.absorbed_flops(self.heads)
        return 4 * self.heads * self.head_dim * self.layers

    @cached_property
    def prefill_attention_flops_per_position(self) -> int:
        """The same for a query of a prompt: MLA's expanded form, else no different."""
        if self.mla:
            return self.layers * self.mla.expanded_flops(self.heads)
        return self.attention_flops_per_position

    def kv_bytes_per_token(self, bytes_per_element: float) -> int:
        """KV cache of one token over all layers, bytes.

        2 · layers · kv_heads · head_dim · b, but layers · (kv_rank + rope_dim) · b with MLA.
        """
        per_layer = self.mla.cached_elements if self.mla else 2 * self.kv_heads * self.head_dim
        return round(self.layers * per_layer * bytes_per_element)
