"""A Llama-family model's weights as the vector kernels read them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from engine.models.config import LlamaConfig
from kernels.linear.pack import Packed, dequantised, interleave_gates, pack
from kernels.rope import rope_tables

Get = Callable[[str], Tensor]
GRAIN = 32  # widths must be multiples of it


def fits(config: LlamaConfig) -> bool:
    """Whether the kernels can run a model of this shape."""
    widths = (config.hidden, config.intermediate, config.head_dim)
    return all(width % GRAIN == 0 for width in widths)


class SimdLayer:
    """Gains in float32; q, k and v are one matrix; gates lie beside their ups."""

    def __init__(self, get: Get, index: int, dtype: str) -> None:
        def weight(name: str) -> Tensor:
            return get(f"model.layers.{index}.{name}.weight").float()

        self.attn_norm = weight("input_layernorm")
        self.mlp_norm = weight("post_attention_layernorm")
        qkv = torch.cat([weight(f"self_attn.{n}_proj") for n in "qkv"])
        gates = interleave_gates(weight("mlp.gate_proj"), weight("mlp.up_proj"))
        self.linears: dict[str, Packed] = {
            "qkv": pack(qkv, dtype),
            "out": pack(weight("self_attn.o_proj"), dtype),
            "gate_up": pack(gates, dtype),
            "down": pack(weight("mlp.down_proj"), dtype),
        }


class SimdWeights:
    """All weights of one dtype."""

    def __init__(
        self, config: LlamaConfig, get: Get, dtype: str, progress: Callable[[float], None]
    ) -> None:
        self.dtype = dtype
        self.layers = []
        for i in range(config.layers):
            self.layers.append(SimdLayer(get, i, dtype))
            progress((i + 1) / config.layers)
        embedding = get("model.embed_tokens.weight")
        head = embedding if config.tied_embeddings else get("lm_head.weight")
        self.head = pack(head.float(), dtype)
        self.embedding_bf16 = dtype != "fp32"
        self.embedding = embedding.to(torch.bfloat16 if self.embedding_bf16 else torch.float32)
        self.final_norm = get("model.norm.weight").float()
        self.cos, self.sin = _angles(config)


def _angles(config: LlamaConfig) -> tuple[Tensor, Tensor]:
    """cos and sin, each float32 [positions, head_dim / 2]."""
    cos, signed_sin = rope_tables(
        config.max_context, config.head_dim, config.rope_theta, torch.float32, config.rope_scaling
    )
    half = config.head_dim // 2
    return cos[:, 0, :half].contiguous(), signed_sin[:, 0, half:].contiguous()


def weight_bytes(weights: SimdWeights) -> int:
    """Bytes of all packed linear layers and the head."""
    packed = [p for layer in weights.layers for p in layer.linears.values()]
    return int(np.sum([p.data.numel() for p in [*packed, weights.head]]))


def dequantised_source(get: Get, dtype: str) -> Get:
    """The same tensors, matrices rounded as the quantised dtype rounds them."""

    def rounded(name: str) -> Tensor:
        tensor = get(name)
        quantised = tensor.dim() == 2 and "embed_tokens" not in name
        return dequantised(tensor.float(), dtype) if quantised else tensor

    return rounded
