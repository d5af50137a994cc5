"""A tokenizer for a model whose weights are not here. No torch."""

from __future__ import annotations

from pathlib import Path

from engine.json_file import read_object
from engine.models.gguf_header import gguf_fields
from engine.models.names import DEFAULT_MODEL, default_model_path
from engine.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf


def text_of(model: str) -> tuple[Tokenizer, str]:
    """The model's own tokenizer where its folder has one, else the default model's; its name.

    Lengths of generated prompts are exact either way; only a typed prompt may count otherwise.
    Raises UserError for a damaged tokenizer.
    """
    path = Path(model).expanduser()
    folder = path if path.is_dir() else path.parent
    config = folder / "config.json"
    if path.exists() and config.is_file() and (folder / "tokenizer.json").is_file():
        return tokenizer_from_folder(folder, read_object(config)), folder.name
    return tokenizer_from_gguf(gguf_fields(default_model_path())), DEFAULT_MODEL
