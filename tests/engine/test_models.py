"""Models that would be computed wrongly are refused, and damaged ones say what is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.backends.cpu import CPUBackend
from engine.errors import UserError
from engine.models.gguf_file import check_exact
from engine.models.loader import open_model


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def change_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    file = folder / "config.json"
    raw = json.loads(file.read_text())
    changed = change(raw)
    file.write_text(json.dumps(raw if changed is None else changed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: [], "is not a JSON object"),
        (lambda c: c.update(num_attention_heads="nine"), "a value that no model can have"),
        (lambda c: c.update(num_attention_heads=0, head_dim=None), "no model can have"),
        (lambda c: c.update(num_key_value_heads=4), "no model can have"),
        (lambda c: c.update(rope_parameters={"rope_type": "llama3", "factor": None}), "factor|no"),
        (lambda c: c.update(rope_parameters={"rope_type": "yarn"}), "rope scaling 'yarn'"),
        (lambda c: c.pop("intermediate_size") and None, "has no 'intermediate_size'"),
        (lambda c: c.update(attention_bias=True), "attention_bias is set"),
        (lambda c: c.update(sliding_window=128), "sliding_window is set"),
    ],
)
def test_a_config_that_cannot_be(
    copied: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    change_config(copied, change)
    with pytest.raises(UserError, match=message) as raised:
        open_model(str(copied))
    assert "\n" not in str(raised.value)


def test_a_tensor_of_another_shape(copied: Path) -> None:
    file = copied / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(80, 47)
    save_file(tensors, file, metadata={"format": "pt"})
    source = open_model(str(copied))
    with pytest.raises(UserError, match=r"up_proj.weight is \(80, 47\).*asks for \(80, 48\)"):
        CPUBackend(source, dtype="fp32", kv_dtype="fp32", kv_slots=64)


LLAMA = {"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.11.ffn_up.weight"}


@pytest.mark.parametrize(
    ("fields", "extra", "message"),
    [
        ({"llama.rope.scaling.type": "linear"}, set(), "scaled rotary embeddings"),
        ({}, {"rope_freqs.weight"}, "scaled rotary embeddings"),
        ({}, {"blk.0.attn_q.bias"}, "tensor blk.0.attn_q.bias is not of a dense Llama"),
        ({}, {"blk.3.ffn_gate_inp.weight"}, "ffn_gate_inp.weight is not of a dense"),
    ],
)
def test_a_gguf_that_would_be_computed_wrongly(
    fields: dict[str, str], extra: set[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_exact(Path("m.gguf"), fields, dict.fromkeys(LLAMA | extra))


def test_a_plain_llama_gguf_is_taken() -> None:
    check_exact(Path("m.gguf"), {"llama.rope.scaling.type": "none"}, dict.fromkeys(LLAMA))
