"""Llama-family models in a Hugging Face folder: config.json, *.safetensors, tokenizer.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import UserError
from engine.json_file import read_object
from engine.models.config import config_from_hf
from engine.models.weights import ModelSource
from engine.tokenizer import tokenizer_from_folder


def open_folder(path: Path) -> ModelSource:
    """Raises UserError naming the file that is missing or damaged."""
    file = path / "config.json"
    if not file.is_file():
        raise UserError(
            f"{file} is missing; a model folder needs config.json, tokenizer.json and safetensors"
        )
    raw = read_object(file)
    config = config_from_hf(path.name, raw)
    tokenizer = tokenizer_from_folder(path, raw)
    return ModelSource(config, tokenizer, _getter(path), str(path))


def _getter(path: Path) -> Callable[[str], Tensor]:
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise UserError(f"{path} has no .safetensors file; fetch the model's weights into it")
    try:
        handles: list[Any] = [safe_open(str(f), framework="pt") for f in files]
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: weights are damaged ({error}); fetch them again") from None
    where = {name: handle for handle in handles for name in list(handle.keys())}

    def get(name: str) -> Tensor:
        if name not in where:
            raise UserError(f"{path}: tensor {name} is missing; fetch the weights again")
        tensor: Tensor = where[name].get_tensor(name)
        return tensor

    return get
