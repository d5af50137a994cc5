"""What several rooms of the suite share. Keep it small: most fixtures belong to one room."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# The longest first, where files are shared out among workers: the last file is nobody's alone.
LONGEST = (
    "test_headless",
    "test_headless_cache",
    "test_exactness_tokens",
    "test_kernels_aot",
    "test_bench_command",
    "test_session",
    "test_server",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is quick and small fails first: then processes, and the browser last."""
    slow = ("process", "browser")
    items.sort(key=lambda item: [item.get_closest_marker(mark) is not None for mark in slow[::-1]])
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.stem not in LONGEST)


@pytest.fixture(scope="session")
def default_gguf() -> Path:
    """The installed default model."""
    from engine.models.loader import default_model_path

    return default_model_path()


@pytest.fixture(scope="session")
def make_tiny_model(default_gguf: Path) -> Callable[[Path], Path]:
    """Writes a Llama of two layers and 512 tokens of context with the real tokenizer."""
    return _write_tiny_model


def _write_tiny_model(folder: Path) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from engine.models.loader import open_model
    from engine.models.names import DEFAULT_MODEL

    tokenizer = open_model(DEFAULT_MODEL).tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.fast.get_vocab_size(),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_ids[0],
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    settings = {"chat_template": tokenizer.chat_template, **tokenizer.special_tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_model(
    tmp_path_factory: pytest.TempPathFactory, make_tiny_model: Callable[[Path], Path]
) -> Path:
    """One that no test changes."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def stepscope() -> Path:
    """The installed command."""
    return Path(sys.executable).with_name("stepscope")
