"""Real models for the engine's tests: the default one, and a tiny one that is quick."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.backends.cpu import CPUBackend
from engine.block_manager import BlockManager
from engine.engine import Engine
from engine.messages import TokenMessage
from engine.models.loader import open_model
from engine.models.names import DEFAULT_MODEL
from engine.models.weights import ModelSource
from engine.sink import Sink
from engine.step_record import Accounting, Peaks
from tests.engine.recording import Recording

PEAKS = Peaks(flops=1e12, bandwidth=1e11)
BLOCK_SIZE = 16


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Other processes of the suite need the other core; spinning threads slow each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def smollm() -> ModelSource:
    return open_model(DEFAULT_MODEL)


@pytest.fixture(scope="session")
def smollm_fp32(smollm: ModelSource) -> CPUBackend:
    return CPUBackend(smollm, dtype="fp32", kv_dtype="fp32", kv_slots=256 * BLOCK_SIZE)


@pytest.fixture(scope="session")
def smollm_bf16(smollm: ModelSource) -> CPUBackend:
    return CPUBackend(smollm, dtype="bf16", kv_dtype="bf16", kv_slots=64 * BLOCK_SIZE)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, smollm: ModelSource) -> Path:
    """A Llama of two layers with odd sizes, as transformers writes it, and a real tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=smollm.config.vocab,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(smollm.tokenizer.to_json())
    settings: dict[str, Any] = {"eos_token": {"content": "<|im_end|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> ModelSource:
    return open_model(str(tiny_folder))


MakeEngine = Callable[..., tuple[Engine, Recording]]


@pytest.fixture
def make_engine() -> MakeEngine:
    """An engine over a backend that may be shared: blocks and sequences are the engine's own."""

    def make(
        source: ModelSource,
        backend: CPUBackend | None = None,
        *,
        scheduler: str = "continuous",
        max_batch: int = 8,
        chunk_tokens: int = 256,
        prefix_cache: bool = False,
        blocks: int = 256,
        dtype: str = "fp32",
        sink: Sink | None = None,
    ) -> tuple[Engine, Recording]:
        backend = backend or CPUBackend(
            source, dtype=dtype, kv_dtype=dtype, kv_slots=blocks * BLOCK_SIZE
        )
        recording = Recording()
        messages: list[TokenMessage] = recording.messages
        engine = Engine(
            backend,
            BlockManager(blocks, BLOCK_SIZE),
            Accounting(source.config.spec(), dtype, dtype, PEAKS),
            source.tokenizer,
            sink or recording,
            messages.append,
            scheduler=scheduler,
            max_batch=max_batch,
            chunk_tokens=chunk_tokens,
            prefix_cache=prefix_cache,
        )
        return engine, recording

    return make
