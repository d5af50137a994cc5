"""Random weights of a real shape, made on the device: for work on kernels, not for words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from zlib import crc32

import torch
from torch import Tensor

from engine.errors import UserError
from engine.models.config import LlamaConfig
from engine.models.names import RANDOM_PREFIX
from engine.models.text import text_of
from engine.models.weights import ModelSource, tensor_shape
from engine.physics.catalogue import find_model
from engine.physics.model_spec import ModelSpec
from engine.tokenizer import Tokenizer

_ROPE_THETA, _EPS = 10_000.0, 1e-5  # the catalogue has neither, and neither changes any cost
_SPREAD = 1.5


@dataclass(frozen=True, slots=True)
class FoldedTokenizer(Tokenizer):
    """Another model's tokenizer, its ids folded into a vocabulary that may be smaller."""

    vocab: int = 1

    def encode(self, text: str) -> list[int]:
        return [
            token % self.vocab for token in self.fast.encode(text, add_special_tokens=False).ids
        ]


def random_source(name: str, device: torch.device, dtype: torch.dtype) -> ModelSource:
    """name: "random:" and a model of the catalogue, or a config.json. Tensors are made on the
    device in `dtype` as they are read. No token ends an answer.

    Raises UserError for an unknown model, and for a shape that is not a plain Llama's.
    """
    model = find_model(name.removeprefix(RANDOM_PREFIX))
    spec = model.spec
    if spec is None or spec.moe or spec.mla or spec.window:
        raise UserError(
            f"{model.title} has experts, latent attention or windows, which the engine does not "
            "run: use a dense model of the catalogue, or --backend modelled"
        )
    config = config_of(replace(spec, name=name))
    tokenizer, _ = text_of("")
    folded = FoldedTokenizer(
        tokenizer.fast, (), tokenizer.chat_template, tokenizer.special_tokens, spec.vocab
    )
    return ModelSource(config, folded, random_reader(config, device, dtype), name)


def config_of(spec: ModelSpec) -> LlamaConfig:
    """The spec's sizes, with usual constants."""
    return LlamaConfig(
        name=spec.name,
        layers=spec.layers,
        hidden=spec.hidden,
        intermediate=spec.intermediate,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        vocab=spec.vocab,
        max_context=spec.max_context,
        rope_theta=_ROPE_THETA,
        rms_norm_eps=_EPS,
        tied_embeddings=spec.tied_embeddings,
    )


def random_reader(
    config: LlamaConfig, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> Callable[[str], Tensor]:
    """A tensor by its name: the same numbers on every read, on the same kind of device.

    Normal, spread so that activations keep their size through any number of layers and logits lie
    as far apart as a real model's; gains are one.
    """

    def read(name: str) -> Tensor:
        shape = tensor_shape(config, name)
        if len(shape) == 1:
            return torch.ones(shape, device=device, dtype=dtype)
        generator = torch.Generator(device).manual_seed(crc32(f"{seed} {name}".encode()))
        values = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        return values.mul_(_SPREAD / shape[1] ** 0.5)

    return read
