"""Llama-family models in a GGUF file (llama.cpp), dequantised to float32."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import UserError
from engine.models.config import LlamaConfig
from engine.models.gguf_header import gguf_header
from engine.models.weights import ModelSource
from engine.tokenizer import Tokenizer, tokenizer_from_gguf

_LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOP_TENSORS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def open_gguf(path: Path) -> ModelSource:
    """Raises UserError: not GGUF, cut short, another architecture, a key missing."""
    reader = _read(path)
    fields = reader.values
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise UserError(
            f"{path.name}: architecture '{architecture}' is not supported; use a GGUF of a "
            "'llama' architecture"
        )
    tensors = {t.name: t for t in reader.tensors}
    check_exact(path, fields, tensors)
    config = _config(path, fields, tied="output.weight" not in tensors)
    tokenizer = _tokenizer(path, fields)
    return ModelSource(config, tokenizer, _getter(path, tensors, config), str(path))


class _Reader(GGUFReader):
    """The package's reader of tensors, beside our own of the keys and values (see gguf_header).

    values: those; the package's `fields` stay empty but for the counts.
    """

    def __init__(self, path: Path) -> None:
        self.values, self._values_end = gguf_header(path)
        super().__init__(path)

    def _build_fields(self, offs: int, count: int) -> int:
        alignment = self.values.get("general.alignment", self.alignment)
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("the alignment is no power of two")
        self.alignment = alignment
        return self._values_end


def _read(path: Path) -> _Reader:
    try:
        reader = _Reader(path)
        size = path.stat().st_size
        cut = any(int(t.data_offset) + int(t.n_bytes) > size for t in reader.tensors)
    except (ValueError, IndexError, OSError, UnicodeDecodeError, OverflowError) as error:
        raise UserError(_damaged(path)) from error
    if cut or not reader.tensors:
        raise UserError(_damaged(path))
    return reader


def _damaged(path: Path) -> str:
    return f"{path}: not a complete GGUF file (cut short or damaged); fetch it again"


def check_exact(path: Path, fields: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Raise UserError for what the forward pass would silently leave out."""
    scaling = fields.get("llama.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in tensors:
        raise UserError(
            f"{path.name}: scaled rotary embeddings in a GGUF are not supported; "
            "use the model's Hugging Face folder"
        )
    known = {*_TOP_TENSORS.values(), *(f"{n}.weight" for n in _LAYER_TENSORS.values())}
    strange = [n for n in tensors if re.sub(r"^blk\.\d+\.", "", n) not in known]
    if strange:
        raise UserError(
            f"{path.name}: tensor {strange[0]} is not of a dense Llama model without biases; "
            "only those are supported"
        )


def _config(path: Path, fields: dict[str, Any], *, tied: bool) -> LlamaConfig:
    try:
        heads = int(fields["llama.attention.head_count"])
        hidden = int(fields["llama.embedding_length"])
        return LlamaConfig(
            name=path.stem,
            layers=int(fields["llama.block_count"]),
            hidden=hidden,
            intermediate=int(fields["llama.feed_forward_length"]),
            heads=heads,
            kv_heads=int(fields.get("llama.attention.head_count_kv") or heads),
            head_dim=int(fields.get("llama.rope.dimension_count") or hidden // heads),
            vocab=len(fields["tokenizer.ggml.tokens"]),
            max_context=int(fields["llama.context_length"]),
            rope_theta=float(fields.get("llama.rope.freq_base", 10_000.0)),
            rms_norm_eps=float(fields["llama.attention.layer_norm_rms_epsilon"]),
            tied_embeddings=tied,
        )
    except KeyError as missing:
        raise UserError(f"{path.name}: the GGUF has no key {missing}; fetch it again") from None


def _tokenizer(path: Path, fields: dict[str, Any]) -> Tokenizer:
    try:
        return tokenizer_from_gguf(fields)
    except KeyError as missing:
        raise UserError(
            f"{path.name}: the GGUF has no tokenizer ({missing}); use one that carries it"
        ) from None


def _getter(path: Path, tensors: dict[str, Any], config: LlamaConfig) -> Any:
    def get(name: str) -> Tensor:
        gguf_name = _TOP_TENSORS.get(name) or _layer_name(name)
        if gguf_name not in tensors:
            raise UserError(f"{path.name}: tensor {gguf_name} is missing; fetch the file again")
        tensor = tensors[gguf_name]
        values = dequantize(in_long_rows(tensor.data), tensor.tensor_type)
        values = values.astype(np.float32, copy=False)
        values = values.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        if ".attn_q." in gguf_name:
            values = _undo_permutation(values, config.heads)
        elif ".attn_k." in gguf_name:
            values = _undo_permutation(values, config.kv_heads)
        # Unquantised tensors are views of the read-only file: of those hand out a copy.
        return torch.from_numpy(np.require(values, requirements=["C", "W"]))

    return get


def in_long_rows(data: NDArray[Any]) -> NDArray[Any]:
    """The same blocks in fewer, longer rows: `gguf` takes 16 at a time, few bytes of small models.

    A plain array, since slices of a memory map cost numpy several times as much.
    """
    plain = np.asarray(data)
    joined = next(
        (n for n in (16, 8, 4, 2) if plain.ndim == 2 and plain.shape[0] % (16 * n) == 0), 1
    )
    return plain.reshape(-1, joined * plain.shape[-1]) if joined > 1 else plain


def _layer_name(name: str) -> str:
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_LAYER_TENSORS[rest.removesuffix('.weight')]}.weight"


def _undo_permutation(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama.cpp interleaves the two rotated halves of each head; we rotate halves as HF does."""
    out, columns = rows.shape
    return rows.reshape(heads, out // heads // 2, 2, columns).swapaxes(1, 2).reshape(out, columns)
