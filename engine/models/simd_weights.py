"""A Llama-family model's weights as the vector kernels read them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.models.config import LlamaConfig
from engine.quantisation import head_dtype
from kernels.attention.cache_layout import MAX_QUERIES
from kernels.linear.pack import Packed, dequantised, interleave_gates, pack
from kernels.rope import rope_tables
from kernels.simd.memory import Arena

Get = Callable[[str], Tensor]
Place = Callable[[Tensor], Packed]
GRAIN = 32  # widths must be multiples of it


def fits(config: LlamaConfig) -> bool:
    """Whether the kernels can run a model of this shape."""
    widths = (config.hidden, config.intermediate, config.head_dim)
    group = config.heads // config.kv_heads
    return group <= MAX_QUERIES and all(width % GRAIN == 0 for width in widths)


class SimdLayer:
    """Gains in float32; q, k and v are one matrix; gates lie beside their ups."""

    def __init__(self, get: Get, index: int, place: Place) -> None:
        def weight(name: str) -> Tensor:
            return get(f"model.layers.{index}.{name}.weight").float()

        self.attn_norm = weight("input_layernorm")
        self.mlp_norm = weight("post_attention_layernorm")
        qkv = torch.cat([weight(f"self_attn.{n}_proj") for n in "qkv"])
        gates = interleave_gates(weight("mlp.gate_proj"), weight("mlp.up_proj"))
        self.linears: dict[str, Packed] = {
            "qkv": place(qkv),
            "out": place(weight("self_attn.o_proj")),
            "gate_up": place(gates),
            "down": place(weight("mlp.down_proj")),
        }


class SimdWeights:
    """All weights, packed in one dtype.

    rounded_as: round them to what this (quantised) dtype stands for first, so that both copies of a
    quantised model's weights are the same numbers.
    """

    def __init__(
        self,
        config: LlamaConfig,
        get: Get,
        dtype: str,
        progress: Callable[[float], None],
        *,
        rounded_as: str | None = None,
    ) -> None:
        self.dtype, arena = dtype, Arena()
        place = _placer(dtype, rounded_as, arena)
        self.layers = []
        for i in range(config.layers):
            self.layers.append(SimdLayer(get, i, place))
            progress((i + 1) / config.layers)
        embedding = get("model.embed_tokens.weight")
        head = embedding if config.tied_embeddings else get("lm_head.weight")
        head_rounded = rounded_as and head_dtype(rounded_as)
        self.head = _placer(head_dtype(dtype), head_rounded, arena)(head.float())
        self.embedding_bf16 = dtype != "fp32"
        self.embedding = embedding.to(torch.bfloat16 if self.embedding_bf16 else torch.float32)
        self.final_norm = get("model.norm.weight").float()
        self.cos, self.sin = _angles(config)


def _placer(dtype: str, rounded_as: str | None, arena: Arena) -> Place:
    def place(weight: Tensor) -> Packed:
        return pack(dequantised(weight, rounded_as) if rounded_as else weight, dtype, arena)

    return place


def _angles(config: LlamaConfig) -> tuple[Tensor, Tensor]:
    """cos and sin, each float32 [positions, head_dim / 2]."""
    cos, signed_sin = rope_tables(
        config.max_context, config.head_dim, config.rope_theta, torch.float32, config.rope_scaling
    )
    half = config.head_dim // 2
    return cos[:, 0, :half].contiguous(), signed_sin[:, 0, half:].contiguous()
