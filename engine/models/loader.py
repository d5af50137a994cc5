"""From a model's name or path to where its weights come from."""

from __future__ import annotations

from pathlib import Path

from engine.errors import UserError
from engine.models.gguf_file import open_gguf
from engine.models.hf_folder import open_folder
from engine.models.names import DEFAULT_MODEL, default_model_path
from engine.models.weights import ModelSource

__all__ = ["default_model_path", "open_model"]


def open_model(name: str) -> ModelSource:
    """A path to a GGUF file or a Hugging Face folder, or the default model's name.

    Raises UserError when there is no such model or its files are not whole.
    """
    if name == DEFAULT_MODEL:
        return open_gguf(default_model_path())
    path = Path(name).expanduser()
    if path.is_dir():
        return open_folder(path)
    if path.is_file():
        return open_gguf(path)
    raise UserError(
        f"no model at '{name}': give {DEFAULT_MODEL}, a GGUF file, or a folder with config.json, "
        "safetensors and tokenizer.json"
    )
