"""What `--backend cuda` and `random:<model>` take and refuse, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.build_cuda import USABLE_MEMORY, device_kv_size, resolved
from engine.config import EngineConfig
from engine.cuda_device import cuda_device
from engine.errors import UserError
from engine.memory import block_bytes, check_kv_size, weight_bytes
from engine.models.loader import open_model
from engine.models.random_weights import FoldedTokenizer
from engine.models.weights import tensor_shape
from tests.commands import Command

CPU = torch.device("cpu")


def cuda(**changes: Any) -> EngineConfig:
    return EngineConfig(backend="cuda", **changes)


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "gives"),
    [
        ("auto", "auto", ("bf16", "bf16")),
        ("fp16", "auto", ("fp16", "fp16")),
        ("fp16", "fp8", ("fp16", "fp8")),
        ("int4", "auto", ("int4", "bf16")),
        ("int8", "fp8", ("int8", "fp8")),
        ("fp32", "fp32", ("fp32", "fp32")),
    ],
)
def test_dtypes_of_a_gpu(dtype: str, kv_dtype: str, gives: tuple[str, str]) -> None:
    found = resolved(cuda(dtype=dtype, kv_dtype=kv_dtype))
    assert (found.dtype, found.kv_dtype) == gives


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dtype": "fp8"}, "unknown dtype 'fp8': use one of auto, fp32, bf16, fp16, int8, int4"),
        ({"kv_dtype": "int8"}, "unknown kv-dtype 'int8': use one of auto, fp32, bf16, fp16, fp8"),
        ({"threads": 1}, "threads are of the CPU backend"),
        ({"device": "h100-sxm"}, "device is of a modelled device"),
    ],
)
def test_settings_that_a_gpu_does_not_have(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        cuda(**given)


def test_the_cpu_takes_no_dtype_of_a_gpu() -> None:
    for given in ({"dtype": "fp16"}, {"kv_dtype": "fp8"}):
        with pytest.raises(UserError, match="unknown"):
            EngineConfig(**given)


def test_a_cache_of_another_dtype_is_refused() -> None:
    with pytest.raises(UserError, match="kv-dtype fp16 does not go with dtype bf16 on a GPU"):
        resolved(cuda(dtype="bf16", kv_dtype="fp16"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_one_line(stepscope: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs a CUDA device, and torch finds none"):
        cuda_device()
    says = Command(stepscope, tmp_path).refuses("run", "--backend", "cuda", "--db", "a.duckdb")
    assert "needs a CUDA device" in says
    assert "--backend cpu" in says


def test_the_cache_fills_what_is_free_beside_the_weights() -> None:
    spec = open_model("random:llama-3.1-8b").config.spec()
    config, free = resolved(cuda()), 140 * 10**9
    size = device_kv_size(config, spec, free)
    assert size.capacity == size.offered
    held = weight_bytes(config, spec) + size.capacity * block_bytes(config, spec)
    assert USABLE_MEMORY * free - block_bytes(config, spec) < held <= USABLE_MEMORY * free
    asked = device_kv_size(resolved(cuda(kv_blocks=100)), spec, free)
    assert (asked.capacity, asked.offered) == (100, 100)
    with pytest.raises(UserError, match="weights"):
        device_kv_size(config, spec, 10 * 10**9)


def test_random_weights_have_the_shape_of_the_catalogue() -> None:
    source = open_model("random:smollm2-135m", CPU, torch.bfloat16)
    config = source.config
    assert (config.layers, config.hidden, config.vocab) == (30, 576, 49152)
    name = "model.layers.7.mlp.down_proj.weight"
    weight = source.get(name)
    assert weight.shape == tensor_shape(config, name) == (576, 1536)
    assert weight.dtype is torch.bfloat16
    assert torch.equal(weight, source.get(name))
    assert not torch.equal(weight, source.get("model.layers.8.mlp.down_proj.weight"))
    assert float(weight.float().std()) == pytest.approx(1.5 / 1536**0.5, rel=0.02)
    assert source.get("model.norm.weight").eq(1).all()
    assert source.tokenizer.eos_token_ids == ()


def test_ids_of_another_tokenizer_are_folded_into_the_vocabulary() -> None:
    tokenizer = open_model("random:smollm2-135m").tokenizer
    assert isinstance(tokenizer, FoldedTokenizer)
    small = FoldedTokenizer(tokenizer.fast, (), None, {}, 300)
    ids = tokenizer.encode("The quick brown fox")
    assert max(ids) > 300
    assert small.encode("The quick brown fox") == [i % 300 for i in ids]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("random:gpt-2", "unknown model 'gpt-2'"),
        ("random:mixtral-8x7b", "experts, latent attention or windows, which the engine does not"),
        ("randomly", "random:<model of the catalogue>"),
    ],
)
def test_what_random_does_not_make(name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        open_model(name)


def test_a_random_model_that_does_not_fit_the_memory_is_refused() -> None:
    name = "random:llama-3.1-405b"
    spec = open_model(name).config.spec()
    with pytest.raises(UserError, match=r"needs 811\.7 GB for its weights"):
        check_kv_size(EngineConfig(model=name, dtype="bf16"), spec, 64 * 10**9)
