"""The shape of a Llama-family model, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.errors import UserError
from engine.physics.model_spec import ModelSpec
from kernels.rope import RopeScaling

# What the forward pass in engine.models.llama computes exactly.
SUPPORTED_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes and constants; names follow Hugging Face's config.json where they can."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_context: int
    rope_theta: float
    rms_norm_eps: float
    tied_embeddings: bool
    rope_scaling: RopeScaling | None = None

    def spec(self) -> ModelSpec:
        """The counts that the physics need."""
        return ModelSpec(
            name=self.name,
            layers=self.layers,
            hidden=self.hidden,
            intermediate=self.intermediate,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            vocab=self.vocab,
            tied_embeddings=self.tied_embeddings,
            max_context=self.max_context,
        )


def config_from_hf(name: str, raw: dict[str, Any]) -> LlamaConfig:
    """From the content of a config.json. Raises UserError for what we cannot compute exactly."""
    _check_architecture(name, raw)
    try:
        heads = int(raw["num_attention_heads"])
        hidden = int(raw["hidden_size"])
        config = LlamaConfig(
            name=name,
            layers=int(raw["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(raw["intermediate_size"]),
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // heads),
            vocab=int(raw["vocab_size"]),
            max_context=int(raw["max_position_embeddings"]),
            rope_theta=_rope_theta(raw),
            rms_norm_eps=float(raw["rms_norm_eps"]),
            tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
            rope_scaling=_rope_scaling(name, raw),
        )
        config.spec()  # raises ValueError for sizes that do not fit together
        return config
    except KeyError as missing:
        raise UserError(
            f"{name}: config.json has no {missing}; a Llama-family config.json needs it"
        ) from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{name}: config.json holds a value that no model can have ({error}); fetch it again"
        ) from None


def _check_architecture(name: str, raw: dict[str, Any]) -> None:
    architectures = raw.get("architectures") or ["(none named)"]
    if architectures[0] not in SUPPORTED_ARCHITECTURES:
        raise UserError(
            f"{name}: architecture {architectures[0]} is not supported; "
            f"use a model with {' or '.join(SUPPORTED_ARCHITECTURES)}"
        )
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key):
            raise UserError(f"{name}: {key} is set; only models without biases are supported")
    if raw.get("sliding_window"):
        raise UserError(f"{name}: sliding_window is set; only full attention is supported")
    if raw.get("hidden_act", "silu") != "silu":
        raise UserError(f"{name}: hidden_act {raw['hidden_act']} is not supported; only silu is")


def _rope_parameters(raw: dict[str, Any]) -> dict[str, Any]:
    # Newer configs keep theta and scaling in one place, older ones in two.
    return raw.get("rope_parameters") or raw.get("rope_scaling") or {}


def _rope_theta(raw: dict[str, Any]) -> float:
    return float(_rope_parameters(raw).get("rope_theta") or raw.get("rope_theta") or 10_000.0)


def _rope_scaling(name: str, raw: dict[str, Any]) -> RopeScaling | None:
    rope = _rope_parameters(raw)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise UserError(f"{name}: rope scaling '{kind}' is not supported; use default or llama3")
    return RopeScaling(
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_max_position=int(rope["original_max_position_embeddings"]),
    )
