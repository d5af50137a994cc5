"""Where a model comes from: its config, tokenizer and tensors, one interface for all files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from engine.models.config import LlamaConfig
from engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelSource:
    """get(name) returns one tensor under its Hugging Face name, float32 or as stored."""

    config: LlamaConfig
    tokenizer: Tokenizer
    get: Callable[[str], Tensor]
    path: str
