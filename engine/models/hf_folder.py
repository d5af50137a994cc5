"""Llama-family models in a Hugging Face folder: config.json, *.safetensors, tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import UserError
from engine.models.config import config_from_hf
from engine.models.weights import ModelSource
from engine.tokenizer import tokenizer_from_folder


def open_folder(path: Path) -> ModelSource:
    """Raises UserError naming the file that is missing or damaged."""
    raw = _json(path / "config.json")
    config = config_from_hf(path.name, raw)
    tokenizer = tokenizer_from_folder(path, raw)
    return ModelSource(config, tokenizer, _getter(path), str(path))


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(
            f"{path} is missing; a model folder needs config.json, tokenizer.json and safetensors"
        )
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); fetch it again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a JSON object; fetch it again")
    return content


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
