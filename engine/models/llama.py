"""The forward pass of a Llama-family model over a mixed batch (Touvron et al. 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.backends.kernel_times import Mark, unmarked
from engine.models.config import LlamaConfig
from kernels.linear import PackedLinear
from kernels.rms_norm import rms_norm
from kernels.rope import apply_rope_, rope_tables
from kernels.silu_and_mul import silu_and_mul


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer; q, k, v are one matrix, gate and up another."""

    attn_norm: Tensor
    qkv: PackedLinear
    out: PackedLinear
    mlp_norm: Tensor
    gate_up: PackedLinear
    down: PackedLinear


class LayerAttention(Protocol):
    """Writes new K and V of a layer to the cache and attends."""

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """q: [rows, heads, dim], kv: [rows, 2 * kv_heads * dim] -> [rows, heads * dim]."""
        ...


class LlamaModel:
    """Weights, packed once, and the layer loop."""

    def __init__(
        self,
        config: LlamaConfig,
        get: Callable[[str], Tensor],
        dtype: torch.dtype,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.config, self.dtype = config, dtype
        self.embedding = get("model.embed_tokens.weight").to(dtype)
        self.layers = []
        for i in range(config.layers):
            self.layers.append(_load_layer(get, i, dtype))
            progress((i + 1) / config.layers)
        self.final_norm = get("model.norm.weight").to(dtype)
        head = self.embedding if config.tied_embeddings else get("lm_head.weight").to(dtype)
        self.head = PackedLinear(head)
        self.cos, self.sin = rope_tables(
            config.max_context, config.head_dim, config.rope_theta, dtype, config.rope_scaling
        )

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        sampled: Tensor,
        attention: LayerAttention,
        mark: Mark = unmarked,
    ) -> Tensor:
        """token_ids, positions: [rows]; sampled: [n] rows whose logits are wanted -> [n, vocab].

        Both rows and n are at least kernels.linear.MIN_ROWS. mark hears of each kernel that ended;
        attention says itself when rotated keys are cached.
        """
        c = self.config
        x = self.embedding.index_select(0, token_ids)
        cos, sin = self.cos.index_select(0, positions), self.sin.index_select(0, positions)
        mark("embedding")
        rotated = c.heads + c.kv_heads
        for i, layer in enumerate(self.layers):
            normed = rms_norm(x, layer.attn_norm, c.rms_norm_eps)
            mark("rms_norm")
            qkv = layer.qkv(normed)
            mark("qkv_linear")
            heads = qkv.view(-1, rotated + c.kv_heads, c.head_dim)
            apply_rope_(heads[:, :rotated], cos, sin)
            attended = attention(i, heads[:, : c.heads], qkv[:, c.heads * c.head_dim :])
            mark("attention")
            x = layer.out.add_to(attended, x)
            mark("out_linear")
            x = self._mlp(layer, x, mark)
        last = rms_norm(x.index_select(0, sampled), self.final_norm, c.rms_norm_eps)
        mark("rms_norm")
        logits = self.head(last)
        mark("lm_head")
        return logits

    def _mlp(self, layer: Layer, x: Tensor, mark: Mark) -> Tensor:
        normed = rms_norm(x, layer.mlp_norm, self.config.rms_norm_eps)
        mark("rms_norm")
        gate_up = layer.gate_up(normed)
        mark("gate_up_linear")
        gated = silu_and_mul(gate_up)
        mark("silu_and_mul")
        x = layer.down.add_to(gated, x)
        mark("down_linear")
        return x


def _load_layer(get: Callable[[str], Tensor], index: int, dtype: torch.dtype) -> Layer:
    def weight(name: str) -> Tensor:
        return get(f"model.layers.{index}.{name}.weight").to(dtype)

    def stacked(*names: str) -> PackedLinear:
        return PackedLinear(torch.cat([weight(n) for n in names]))

    return Layer(
        attn_norm=weight("input_layernorm"),
        qkv=stacked("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        out=stacked("self_attn.o_proj"),
        mlp_norm=weight("post_attention_layernorm"),
        gate_up=stacked("mlp.gate_proj", "mlp.up_proj"),
        down=stacked("mlp.down_proj"),
    )
