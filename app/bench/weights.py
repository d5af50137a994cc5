"""The model's weights as a peer reads them: a Hugging Face folder, or a GGUF of equal precision.

Kept in the user's cache folder, one for each model file and dtype.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from platformdirs import user_cache_dir

from app.errors import EngineFailedError
from engine.errors import UserError

_GGUF_TYPE = {"bf16": "BF16", "fp32": "F32"}
_CommandFor = Callable[[Path], Sequence[str]]


def hf_folder(source: Path, dtype: str) -> Path:
    """config.json, model.safetensors in the dtype, and the tokenizer."""
    place = _place(source, dtype)
    export = [sys.executable, "-m", "app.bench.export", str(source), dtype]
    return _made(place, lambda aside: [*export, str(aside)])


def gguf_file(source: Path, dtype: str, quantize: Path) -> Path:
    """The model's own GGUF in another precision. Raises UserError where it has none."""
    if source.is_dir():
        raise UserError(
            f"llama.cpp reads GGUF files only and {source} is a folder: give --model a GGUF file, "
            "or leave llama.cpp out"
        )
    place = _place(source, dtype).with_suffix(".gguf")
    convert = [str(quantize), "--allow-requantize", str(source)]
    return _made(place, lambda aside: [*convert, str(aside), _GGUF_TYPE[dtype], "2"])


def _place(source: Path, dtype: str) -> Path:
    files = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
    stamps = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    digest = hashlib.sha256(repr(stamps).encode()).hexdigest()[:12]
    root = Path(os.environ.get("STEPSCOPE_CACHE_DIR") or user_cache_dir("stepscope"))
    name = source.name if source.is_dir() else source.stem
    return root / "peers" / f"{name.replace('.', '-')}-{digest}-{dtype}"


def _made(place: Path, command_for: _CommandFor) -> Path:
    """Made aside and renamed, so that a half-written copy is never taken for one."""
    if place.exists():
        return place
    aside = place.with_name(f"{place.stem}.{os.getpid()}.tmp{place.suffix}")
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        ended = subprocess.run(command_for(aside), capture_output=True, text=True, check=False)
        if ended.returncode:
            raise EngineFailedError(
                f"the weights could not be written to {place}: {ended.stderr[-300:]}"
            )
        aside.rename(place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if aside.is_file():
            aside.unlink()
    return place
