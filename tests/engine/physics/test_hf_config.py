"""Shapes from config.json, against the catalogue and against the models of transformers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import UserError
from engine.physics.catalogue import find_model
from engine.physics.hf_config import ARCHITECTURES, spec_of_config
from engine.physics.model_spec import ModelSpec
from engine.physics.shapes import MLA, MoE, Window

TINY = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "intermediate_size": 96,
    "vocab_size": 130,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
GATED: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    **GATED,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"head_dim": 20, "sliding_window": 16},
    "Qwen2ForCausalLM": {"tie_word_embeddings": True},
    "Qwen3ForCausalLM": {"head_dim": 24},
    "MixtralForCausalLM": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen3MoeForCausalLM": {"head_dim": 16, "num_experts": 6, "mlp_only_layers": [1], **GATED},
    "DeepseekV2ForCausalLM": {**LATENT, "q_lora_rank": None},
    "DeepseekV3ForCausalLM": LATENT,
}


def config(architecture: str, **changes: Any) -> dict[str, Any]:
    raw = {**TINY, **CONFIGS[architecture], "architectures": [architecture], **changes}
    return {key: value for key, value in raw.items() if value != "left out"}


def left_out_params(name: str) -> bool:
    """Biases and norms of single heads: what a spec says it does not count."""
    return name.endswith((".bias", "q_norm.weight", "k_norm.weight"))


@pytest.mark.parametrize("architecture", CONFIGS)
def test_parameters_are_those_of_the_real_model(architecture: str) -> None:
    import transformers

    raw = config(architecture)
    made = {"architectures": None} | {k: v for k, v in raw.items() if k != "architectures"}
    kind = getattr(transformers, architecture)
    with torch.device("meta"):
        model = kind(kind.config_class(**made))
    real = sum(p.numel() for n, p in model.named_parameters() if not left_out_params(n))
    assert spec_of_config("tiny", raw).total_params == real


def test_every_architecture_is_tried() -> None:
    assert set(CONFIGS) == set(ARCHITECTURES)


def test_the_catalogue_is_its_configs() -> None:
    """The two models whose shapes are the least plain, as their config.json has them."""
    sizes = {
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "vocab_size": 129280,
        "max_position_embeddings": 163840,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
    }
    deepseek = config("DeepseekV3ForCausalLM", **sizes)
    assert spec_of_config("deepseek-v3", deepseek) == find_model("deepseek-v3").spec
    sizes = {
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "mlp_only_layers": [],
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
        "use_sliding_window": False,
        "sliding_window": None,
    }
    qwen = config("Qwen3MoeForCausalLM", **sizes)
    assert spec_of_config("qwen3-30b-a3b", qwen) == find_model("qwen3-30b-a3b").spec


def test_dense_shape() -> None:
    made = spec_of_config("tiny", config("LlamaForCausalLM", num_key_value_heads=None))
    assert made == ModelSpec("tiny", 3, 64, 96, 4, 4, 16, 130, False, 256)


def test_experts() -> None:
    mixtral = spec_of_config("tiny", config("MixtralForCausalLM"))
    assert mixtral.moe == MoE(experts=4, experts_per_token=2, expert_intermediate=96)
    qwen = config("Qwen3MoeForCausalLM", decoder_sparse_step=2, mlp_only_layers=[])
    assert spec_of_config("tiny", qwen).moe == MoE(6, 2, 48, dense_layers=2)  # layers 0 and 2
    assert spec_of_config("tiny", config("Qwen3MoeForCausalLM")).moe == MoE(6, 2, 48, 0, 1)


def test_latent_attention_never_gets_the_gqa_formula() -> None:
    spec = spec_of_config("tiny", config("DeepseekV3ForCausalLM"))
    assert spec.mla == MLA(q_rank=24, kv_rank=16, nope_dim=8, rope_dim=4, v_dim=6)
    assert spec.moe == MoE(8, 2, 48, shared_intermediate=96, dense_layers=1)
    assert spec.kv_bytes_per_token(2) == 3 * (16 + 4) * 2
    assert replace(spec, kv_heads=1, head_dim=999).kv_bytes_per_token(2) == 3 * (16 + 4) * 2


def test_only_every_so_many_layers_may_have_experts() -> None:
    raw = config("DeepseekV2ForCausalLM", num_hidden_layers=7, moe_layer_freq=3)
    made = spec_of_config("tiny", raw).moe
    assert made is not None
    assert made.dense_layers == 5  # layers 3 and 6 have experts; 0 is before the first


def test_queries_without_a_rank_are_stated_as_null() -> None:
    assert spec_of_config("tiny", config("DeepseekV2ForCausalLM")).mla == MLA(None, 16, 8, 4, 6)
    with pytest.raises(UserError, match=r"config.json has no 'q_lora_rank'"):
        spec_of_config("tiny", config("DeepseekV3ForCausalLM", q_lora_rank="left out"))


def test_windows_count_where_the_config_turns_them_on() -> None:
    assert spec_of_config("m", config("MistralForCausalLM")).window == Window(16, 3)
    none = config("MistralForCausalLM", sliding_window=None)
    assert spec_of_config("m", none).window is None
    off = {"sliding_window": 32, "max_window_layers": 1, "use_sliding_window": False}
    assert spec_of_config("q", config("Qwen3ForCausalLM", **off)).window is None
    on = {**off, "use_sliding_window": True}
    assert spec_of_config("q", config("Qwen3ForCausalLM", **on)).window == Window(32, 2)
    kinds = ["full_attention", "full_attention", "sliding_attention"]
    typed = config("Qwen3ForCausalLM", **on, layer_types=kinds)
    assert spec_of_config("q", typed).window == Window(32, 1)


@pytest.mark.parametrize(
    ("architecture", "key"),
    [
        *((name, "num_hidden_layers") for name in CONFIGS),
        ("LlamaForCausalLM", "vocab_size"),
        ("Qwen3ForCausalLM", "head_dim"),
        ("MixtralForCausalLM", "num_local_experts"),
        ("Qwen3MoeForCausalLM", "moe_intermediate_size"),
        ("DeepseekV3ForCausalLM", "kv_lora_rank"),
    ],
)
def test_a_missing_key_is_named(architecture: str, key: str) -> None:
    with pytest.raises(UserError, match=f"tiny: config.json has no '{key}'"):
        spec_of_config("tiny", config(architecture, **{key: "left out"}))


@pytest.mark.parametrize("value", [-3, 0, 2.5, "64", True, 10**12, [64]])
def test_an_absurd_value_is_refused_by_its_key(value: object) -> None:
    with pytest.raises(
        UserError, match=r"'hidden_size' in config.json is .*: use 1 to 100,000,000"
    ):
        spec_of_config("tiny", config("LlamaForCausalLM", hidden_size=value))


def test_sizes_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(UserError, match="4 query heads do not share 3 KV heads"):
        spec_of_config("tiny", config("LlamaForCausalLM", num_key_value_heads=3))
    with pytest.raises(UserError, match="experts_per_token is 9, use 1 to 4"):
        spec_of_config("tiny", config("MixtralForCausalLM", num_experts_per_tok=9))


@pytest.mark.parametrize("named", [["MambaForCausalLM"], [], None, "Llama"])
def test_an_unknown_architecture_gets_the_known_ones(named: object) -> None:
    with pytest.raises(UserError, match=r"is not known: .*LlamaForCausalLM.*DeepseekV3ForCausalLM"):
        spec_of_config("tiny", config("LlamaForCausalLM", architectures=named))


def test_a_file_or_its_folder_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config("MixtralForCausalLM")))
    model = find_model(str(folder))
    assert find_model(str(folder / "config.json")) == replace_source(model, folder / "config.json")
    assert model.name == "my-model"
    assert model.spec == spec_of_config("my-model", config("MixtralForCausalLM"))
    assert (model.total_params, model.max_context) == (model.spec.total_params, 256)


def replace_source(model: Any, path: Path) -> Any:
    return model.model_copy(
        update={"sources": dict.fromkeys(model.sources, f"counted from {path}")}
    )


def test_bad_files_get_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"hidden_size": 3')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    for name, said in {
        "broken.json": "cannot be read as JSON",
        "list.json": "holds no object",
        "binary.json": "cannot be read as JSON",
        "absent.json": "is not there",
        "empty": "config.json is not there",
    }.items():
        with pytest.raises(UserError, match=said) as error:
            find_model(str(tmp_path / name))
        assert "\n" not in str(error.value)
