"""A small Llama of random weights, made in memory, that the vector kernels run."""

from __future__ import annotations

from zlib import crc32

import torch
from torch import Tensor

from engine.models.config import LlamaConfig
from engine.models.weights import ModelSource


def random_model(like: ModelSource, head_dim: int, heads: int, kv_heads: int) -> ModelSource:
    """Two layers of random weights, with logits as far apart as a real model's."""
    config = LlamaConfig(
        name=f"random-{head_dim}",
        layers=2,
        hidden=96,
        intermediate=160,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=700,
        max_context=512,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        tied_embeddings=False,
        rope_scaling=None,
    )
    queries, keys = heads * head_dim, kv_heads * head_dim
    shapes = {
        **dict.fromkeys(("embed_tokens", "lm_head"), (config.vocab, config.hidden)),
        **dict.fromkeys(("k_proj", "v_proj"), (keys, config.hidden)),
        **dict.fromkeys(("gate_proj", "up_proj"), (config.intermediate, config.hidden)),
        "q_proj": (queries, config.hidden),
        "o_proj": (config.hidden, queries),
        "down_proj": (config.hidden, config.intermediate),
    }

    def read(name: str) -> Tensor:
        generator = torch.Generator().manual_seed(crc32(name.encode()) + head_dim)
        shape = shapes.get(name.split(".")[-2])
        values = torch.randn(shape or config.hidden, generator=generator)
        return 1 + 0.1 * values if shape is None else values.mul(1.5 / shape[1] ** 0.5)

    return ModelSource(config, like.tokenizer, read, config.name)
