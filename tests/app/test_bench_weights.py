"""The weights that peers get are ours, and a copy that failed is never taken for one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from app.bench.export import export, tensor_names
from app.bench.weights import _made, gguf_file, hf_folder
from app.errors import EngineFailedError
from engine.errors import UserError
from engine.models.loader import open_model


@pytest.mark.parametrize(
    ("dtype", "torch_dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_an_exported_model_is_the_same_model(
    tiny_model: Path, tmp_path: Path, dtype: str, torch_dtype: torch.dtype
) -> None:
    source = open_model(str(tiny_model))
    export(source, dtype, tmp_path / "out")
    again = open_model(str(tmp_path / "out"))
    assert {f: getattr(again.config, f) for f in again.config.__slots__ if f != "name"} == {
        f: getattr(source.config, f) for f in source.config.__slots__ if f != "name"
    }
    for name in tensor_names(source.config):
        assert again.get(name).dtype == torch_dtype
        assert torch.equal(again.get(name), source.get(name).to(torch_dtype))
    assert again.tokenizer.eos_token_ids == source.tokenizer.eos_token_ids


def test_transformers_computes_the_same_with_it(tiny_model: Path, tmp_path: Path) -> None:
    export(open_model(str(tiny_model)), "fp32", tmp_path / "out")
    models: Any = AutoModelForCausalLM
    ids = torch.tensor([[5, 300, 7, 1000]])
    with torch.inference_mode():
        ours, theirs = (
            models.from_pretrained(f)(ids).logits for f in (tmp_path / "out", tiny_model)
        )
    assert torch.equal(ours, theirs)


def test_weights_are_made_once(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path))
    place = hf_folder(tiny_model, "bf16")
    assert place.parent == tmp_path / "peers"
    made = (place / "model.safetensors").stat().st_mtime_ns
    assert hf_folder(tiny_model, "bf16") == place
    assert (place / "model.safetensors").stat().st_mtime_ns == made
    assert hf_folder(tiny_model, "fp32") != place


def test_llama_cpp_cannot_read_a_folder(tiny_model: Path) -> None:
    with pytest.raises(UserError, match=r"GGUF files only.*give --model a GGUF file"):
        gguf_file(tiny_model, "bf16", Path("llama-quantize"))


def test_a_copy_that_failed_leaves_nothing(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'w').write('half'); sys.exit('the disk is full')"
    place = tmp_path / "weights" / "model.gguf"
    with pytest.raises(EngineFailedError, match="the disk is full"):
        _made(place, lambda aside: [sys.executable, "-c", code, str(aside)])
    assert list(place.parent.iterdir()) == []
