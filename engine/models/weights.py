"""Where a model comes from: its config, tokenizer and tensors, one interface for all files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.errors import UserError
from engine.models.config import LlamaConfig
from engine.tokenizer import Tokenizer


class TensorSource(Protocol):
    """What a runner needs: sizes, and tensors by their Hugging Face names."""

    @property
    def config(self) -> LlamaConfig: ...

    def get(self, name: str) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class ModelSource:
    """read(name) returns one tensor under its Hugging Face name, float32 or as stored."""

    config: LlamaConfig
    tokenizer: Tokenizer
    read: Callable[[str], Tensor]
    path: str

    def get(self, name: str) -> Tensor:
        """A tensor of the shape that the config asks for, else UserError."""
        tensor = self.read(name)
        expected = tensor_shape(self.config, name)
        if tuple(tensor.shape) != expected:
            raise UserError(
                f"{self.path}: tensor {name} is {tuple(tensor.shape)}, but the config asks for "
                f"{expected}; fetch the model again"
            )
        return tensor


def tensor_shape(c: LlamaConfig, name: str) -> tuple[int, ...]:
    """The shape of a tensor by its Hugging Face name; gains are [hidden]."""
    queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
    shapes = {
        "embed_tokens": (c.vocab, c.hidden),
        "lm_head": (c.vocab, c.hidden),
        "q_proj": (queries, c.hidden),
        "k_proj": (keys, c.hidden),
        "v_proj": (keys, c.hidden),
        "o_proj": (c.hidden, queries),
        "gate_proj": (c.intermediate, c.hidden),
        "up_proj": (c.intermediate, c.hidden),
        "down_proj": (c.hidden, c.intermediate),
    }
    return shapes.get(name.split(".")[-2], (c.hidden,))
