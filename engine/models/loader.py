"""From a model's name or path to where its weights come from."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.errors import UserError
from engine.models.gguf_file import open_gguf
from engine.models.hf_folder import open_folder
from engine.models.names import DEFAULT_MODEL, RANDOM_PREFIX, default_model_path
from engine.models.random_weights import random_source
from engine.models.weights import ModelSource

__all__ = ["default_model_path", "open_model"]

CPU = torch.device("cpu")


def open_model(
    name: str, device: torch.device = CPU, dtype: torch.dtype = torch.float32
) -> ModelSource:
    """A path to a GGUF file or a Hugging Face folder, the default model's name, or random:<model of
    the catalogue>, whose weights are made on `device` in `dtype`.

    Raises UserError when there is no such model or its files are not whole.
    """
    if name == DEFAULT_MODEL:
        return open_gguf(default_model_path())
    if name.startswith(RANDOM_PREFIX):
        return random_source(name, device, dtype)
    path = Path(name).expanduser()
    if path.is_dir():
        return open_folder(path)
    if path.is_file():
        return open_gguf(path)
    raise UserError(
        f"no model at '{name}': give {DEFAULT_MODEL}, a GGUF file, a folder with config.json, "
        f"safetensors and tokenizer.json, or {RANDOM_PREFIX}<model of the catalogue>"
    )
