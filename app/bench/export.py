"""A model as a Hugging Face folder that every library reads: `python -m app.bench.export`.

Arguments: model file or folder, dtype (bf16 or fp32), the folder to make.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.models.config import LlamaConfig
from engine.models.loader import open_model
from engine.models.weights import ModelSource

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
_LAYER = (
    *("input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj"),
    *("self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)


def export(source: ModelSource, dtype: str, folder: Path) -> None:
    """Write config, weights and tokenizer into a new folder."""
    folder.mkdir(parents=True)
    tensors = {name: _tensor(source, name, dtype) for name in tensor_names(source.config)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = source.tokenizer
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    _write(folder / "config.json", hf_config(source, dtype))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer.special_tokens}
    _write(folder / "tokenizer_config.json", settings)
    _write(folder / "generation_config.json", {"eos_token_id": list(tokenizer.eos_token_ids)})


def tensor_names(config: LlamaConfig) -> list[str]:
    """All tensors of the model, under their Hugging Face names."""
    layers = [f"model.layers.{i}.{part}.weight" for i in range(config.layers) for part in _LAYER]
    top = ["model.embed_tokens.weight", "model.norm.weight"]
    return [*top, *layers, *([] if config.tied_embeddings else ["lm_head.weight"])]


def _tensor(source: ModelSource, name: str, dtype: str) -> Tensor:
    return source.get(name).to(DTYPES[dtype]).contiguous()


def hf_config(source: ModelSource, dtype: str) -> dict[str, Any]:
    """The content of config.json."""
    c = source.config
    eos = list(source.tokenizer.eos_token_ids)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "num_hidden_layers": c.layers,
        "hidden_size": c.hidden,
        "intermediate_size": c.intermediate,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "vocab_size": c.vocab,
        "max_position_embeddings": c.max_context,
        "rms_norm_eps": c.rms_norm_eps,
        "rope_theta": c.rope_theta,
        "rope_scaling": _rope_scaling(c),
        "tie_word_embeddings": c.tied_embeddings,
        "eos_token_id": eos[0] if len(eos) == 1 else eos,
        "torch_dtype": {"bf16": "bfloat16", "fp32": "float32"}[dtype],
    }


def _rope_scaling(config: LlamaConfig) -> dict[str, Any] | None:
    scaling = config.rope_scaling
    if scaling is None:
        return None
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_position,
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> None:
    """model, dtype, folder."""
    model, dtype, folder = arguments
    export(open_model(model), dtype, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
