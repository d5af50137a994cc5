"""The shape of a model from its Hugging Face config.json: counts only, no weights are needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.physics.model_spec import ModelSpec
from engine.physics.shapes import MLA, MoE, Window

_MOST = 100_000_000  # of any size: above it the file is not a model's
_MOST_LAYERS = 10_000
_MOST_FILE_BYTES = 16_000_000

Parts = dict[str, Any]


class Config:
    """The content of one config.json; asking for what it does not hold raises UserError."""

    def __init__(self, name: str, raw: dict[str, Any]) -> None:
        self.name, self.raw = name, raw

    def size(self, key: str, least: int = 1, most: int = _MOST) -> int:
        """A whole number that the model needs."""
        if self.raw.get(key) is None:
            raise UserError(
                f"{self.name}: config.json has no '{key}'; {self.architecture} needs it: add it, "
                "or fetch the file again"
            )
        value = self.raw[key]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise UserError(
                f"{self.name}: '{key}' in config.json is {value!r}: use {least} to {most:,}"
            )
        return value

    def given(self, key: str, default: int, least: int = 1) -> int:
        """A whole number that may be left out."""
        return default if self.raw.get(key) is None else self.size(key, least)

    @property
    def layers(self) -> int:
        """How many layers the decoder has."""
        return self.size("num_hidden_layers", most=_MOST_LAYERS)

    @property
    def architecture(self) -> str:
        """The first of its architectures."""
        named = self.raw.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else "(none named)"


def read_config(path: Path) -> ModelSpec:
    """The spec of a config.json, or of the folder that holds one. Raises UserError."""
    file = path / "config.json" if path.is_dir() else path
    named = file.parent.resolve().name if file.name == "config.json" else file.stem
    return spec_of_config(named or "model", _read(file))


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise UserError(f"{file} is not there: give a model's config.json or the folder it is in")
    if file.stat().st_size > _MOST_FILE_BYTES:
        raise UserError(f"{file} is too big to be a config.json: give the model's config.json")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read as JSON ({error}): fetch it again") from None
    if not isinstance(raw, dict):
        raise UserError(f"{file} is no config.json: it holds no object; fetch it again")
    return raw


def spec_of_config(name: str, raw: dict[str, Any]) -> ModelSpec:
    """From the content of a config.json. Raises UserError naming what is missing or unknown."""
    config = Config(name, raw)
    if config.architecture not in ARCHITECTURES:
        raise UserError(
            f"{name}: architecture {config.architecture} is not known: use a config.json of "
            f"{', '.join(ARCHITECTURES)}"
        )
    try:
        parts = {**_common(config), **ARCHITECTURES[config.architecture](config)}
        return ModelSpec(name=name, **parts)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{name}: config.json holds what no model can have ({error})") from None


def _common(config: Config) -> Parts:
    return {
        "layers": config.layers,
        "hidden": config.size("hidden_size"),
        "intermediate": config.size("intermediate_size"),
        "heads": config.size("num_attention_heads"),
        "vocab": config.size("vocab_size"),
        "tied_embeddings": config.raw.get("tie_word_embeddings") is True,
        "max_context": config.size("max_position_embeddings"),
    }


def _heads(config: Config) -> Parts:
    """Grouped-query attention; where they are left out each query head has its KV head."""
    heads = config.size("num_attention_heads")
    even = config.size("hidden_size") // heads
    return {
        "kv_heads": config.given("num_key_value_heads", heads),
        "head_dim": config.given("head_dim", even),
    }


def _llama(config: Config) -> Parts:
    return _heads(config)


def _mistral(config: Config) -> Parts:
    """Its window, if it has one, is that of every layer."""
    layers = config.layers
    return {**_heads(config), "window": _window(config, layers)}


def _qwen(config: Config) -> Parts:
    """Its window needs to be switched on, and holds from layer max_window_layers on."""
    if config.raw.get("use_sliding_window") is not True:
        return _heads(config)
    layers = config.layers
    first = min(layers, config.size("max_window_layers", least=0))
    return {**_heads(config), "window": _window(config, layers - first)}


def _qwen3(config: Config) -> Parts:
    config.size("head_dim")  # not hidden / heads in these
    return _qwen(config)


def _window(config: Config, layers: int) -> Window | None:
    types = config.raw.get("layer_types")
    if isinstance(types, list):
        layers = types.count("sliding_attention")
    if not layers or config.raw.get("sliding_window") is None:
        return None
    return Window(config.size("sliding_window"), layers)


def _mixtral(config: Config) -> Parts:
    experts = MoE(
        experts=config.size("num_local_experts"),
        experts_per_token=config.size("num_experts_per_tok"),
        expert_intermediate=config.size("intermediate_size"),
    )
    return {**_mistral(config), "moe": experts}


def _qwen3_moe(config: Config) -> Parts:
    """Every decoder_sparse_step-th layer has experts, but for those in mlp_only_layers."""
    step = config.given("decoder_sparse_step", 1)
    plain = config.raw.get("mlp_only_layers") or []
    layers = range(config.layers)
    experts = MoE(
        experts=config.size("num_experts"),
        experts_per_token=config.size("num_experts_per_tok"),
        expert_intermediate=config.size("moe_intermediate_size"),
        dense_layers=sum(bool((i + 1) % step) or i in plain for i in layers),
    )
    return {**_qwen3(config), "moe": experts}


def _deepseek(config: Config) -> Parts:
    """V2 and V3: latent attention; experts after the first layers, one or more shared."""
    direct = config.raw.get("q_lora_rank", 0) is None  # stated as null: queries have no rank
    mla = MLA(
        q_rank=None if direct else config.size("q_lora_rank"),
        kv_rank=config.size("kv_lora_rank"),
        nope_dim=config.size("qk_nope_head_dim"),
        rope_dim=config.size("qk_rope_head_dim"),
        v_dim=config.size("v_head_dim"),
    )
    heads = config.size("num_attention_heads")
    shape = {"kv_heads": heads, "head_dim": mla.nope_dim + mla.rope_dim, "mla": mla}
    return {**shape, "moe": _deepseek_experts(config)}


def _deepseek_experts(config: Config) -> MoE:
    width = config.size("moe_intermediate_size")
    every = config.given("moe_layer_freq", 1)
    first = config.size("first_k_dense_replace", least=0)
    layers = range(config.layers)
    return MoE(
        experts=config.size("n_routed_experts"),
        experts_per_token=config.size("num_experts_per_tok"),
        expert_intermediate=width,
        shared_intermediate=config.given("n_shared_experts", 0, least=0) * width,
        dense_layers=sum(i < first or i % every != 0 for i in layers),
    )


ARCHITECTURES: dict[str, Callable[[Config], Parts]] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen,
    "Qwen3ForCausalLM": _qwen3,
    "MixtralForCausalLM": _mixtral,
    "Qwen3MoeForCausalLM": _qwen3_moe,
    "DeepseekV2ForCausalLM": _deepseek,
    "DeepseekV3ForCausalLM": _deepseek,
}
"""What each architecture adds to the sizes that all of them have."""
