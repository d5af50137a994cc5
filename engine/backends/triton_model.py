"""The forward pass of a Llama-family model on Triton kernels and the device's matmuls.

As engine.models.llama (Touvron et al. 2023), in other pieces: the residual stream is added to in
the same pass as the norm that follows it, and rotation writes the KV cache. Big matmuls are
torch's, which are cuBLAS on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.backends.kernel_times import Mark, unmarked
from engine.models.config import LlamaConfig
from kernels.rms_norm.triton_impl import add_rms_norm, rms_norm
from kernels.rope import rope_tables
from kernels.rope.triton_impl import rope_and_cache
from kernels.silu_and_mul.triton_impl import silu_and_mul

Linear = Callable[[Tensor], Tensor]
MakeLinear = Callable[[Tensor, str], Linear]
"""From a weight [out, in] as stored and what it is for, "layer" or "head", to a layer:
[rows, in] -> [rows, out]."""


class Attention(Protocol):
    """Attends over one layer's cache, in which the new K and V already are."""

    def __call__(self, q: Tensor, cache: Tensor, /) -> Tensor:
        """q: [rows, heads, dim], cache: [slots, 2, kv_heads, dim] -> [rows, heads, dim]."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """What every row of a step is: tokens int64 [rows]; positions and slots (of the KV cache, where
    its K and V go; negative: nowhere) int32 [rows]. sampled: int64 rows whose logits are wanted, in
    that order; None: all."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    sampled: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer; q, k, v are one matrix, gate and up another."""

    attn_norm: Tensor
    qkv: Linear
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class TritonModel:
    """Weights on a device, and the layer loop."""

    def __init__(
        self,
        config: LlamaConfig,
        get: Callable[[str], Tensor],
        dtype: torch.dtype,
        device: torch.device,
        make_linear: MakeLinear,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.config = config

        def stored(name: str) -> Tensor:
            return get(f"{name}.weight").to(device)

        self.embedding = stored("model.embed_tokens").to(dtype)
        self.layers = []
        for i in range(config.layers):
            self.layers.append(_load_layer(stored, f"model.layers.{i}", dtype, make_linear))
            progress((i + 1) / config.layers)
        self.final_norm = stored("model.norm").to(dtype)
        head = stored("model.embed_tokens" if config.tied_embeddings else "lm_head")
        self.head = make_linear(head, "head")
        self.cos, self.sin = _half_tables(config, device)

    def forward(
        self, rows: Rows, cache: Tensor, attention: Attention, mark: Mark = unmarked
    ) -> Tensor:
        """cache: [layers, slots, 2, kv_heads, dim] -> logits [sampled, vocab].

        mark hears of each kernel that was launched.
        """
        c = self.config
        residual = self.embedding.index_select(0, rows.tokens)
        mark("embedding")
        normed = rms_norm(residual, self.layers[0].attn_norm, c.rms_norm_eps)
        mark("rms_norm")
        for i, layer in enumerate(self.layers):
            attended = self._attend(layer, normed, rows, cache[i], attention, mark)
            normed = add_rms_norm(attended, residual, layer.mlp_norm, c.rms_norm_eps)
            mark("rms_norm")
            change = _mlp(layer, normed, mark)
            if i + 1 < c.layers:
                gain = self.layers[i + 1].attn_norm
                normed = add_rms_norm(change, residual, gain, c.rms_norm_eps)
                mark("rms_norm")
        if rows.sampled is not None:
            change, residual = (x.index_select(0, rows.sampled) for x in (change, residual))
        last = add_rms_norm(change, residual, self.final_norm, c.rms_norm_eps)
        mark("rms_norm")
        logits = self.head(last)
        mark("lm_head")
        return logits

    def _attend(
        self,
        layer: Layer,
        normed: Tensor,
        rows: Rows,
        cache: Tensor,
        attention: Attention,
        mark: Mark,
    ) -> Tensor:
        """[rows, hidden] -> [rows, hidden]: attention with both of its projections."""
        c = self.config
        qkv = layer.qkv(normed).view(-1, c.heads + 2 * c.kv_heads, c.head_dim)
        mark("qkv_linear")
        rope_and_cache(qkv, rows.positions, self.cos, self.sin, rows.slots, cache, c.heads)
        mark("rope_and_cache")
        attended = attention(qkv[:, : c.heads], cache).view(-1, c.heads * c.head_dim)
        mark("attention")
        out = layer.out(attended)
        mark("out_linear")
        return out


def _mlp(layer: Layer, normed: Tensor, mark: Mark) -> Tensor:
    gate_up = layer.gate_up(normed)
    mark("gate_up_linear")
    gated = silu_and_mul(gate_up)
    mark("silu_and_mul")
    change = layer.down(gated)
    mark("down_linear")
    return change


def _load_layer(
    stored: Callable[[str], Tensor], prefix: str, dtype: torch.dtype, make: MakeLinear
) -> Layer:
    def linear(*names: str) -> Linear:
        return make(torch.cat([stored(f"{prefix}.{name}") for name in names]), "layer")

    return Layer(
        attn_norm=stored(f"{prefix}.input_layernorm").to(dtype),
        qkv=linear("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        out=linear("self_attn.o_proj"),
        mlp_norm=stored(f"{prefix}.post_attention_layernorm").to(dtype),
        gate_up=linear("mlp.gate_proj", "mlp.up_proj"),
        down=linear("mlp.down_proj"),
    )


def _half_tables(config: LlamaConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of each position and pair: float32 [positions, dim / 2]."""
    half = config.head_dim // 2
    cos, sin = rope_tables(
        config.max_context, config.head_dim, config.rope_theta, torch.float32, config.rope_scaling
    )  # the sine's first half has the sign of the swapped half
    tables = (cos[:, 0, :half], sin[:, 0, half:])
    return tuple(t.contiguous().to(device) for t in tables)  # type: ignore[return-value]
