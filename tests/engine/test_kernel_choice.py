"""Vector kernels where they run, torch's ops elsewhere: which is chosen, and with what result."""

from __future__ import annotations

import random

import pytest

from engine.backends.cpu import CPUBackend
from engine.errors import UserError
from engine.models.weights import ModelSource
from engine.request import Request, SamplingParams
from kernels.simd.support import runs
from tests.engine.conftest import MakeEngine
from tests.engine.recording import run_all
from tests.engine.tiny_llama import BLOCK_SIZE, tiny_llama

vector = pytest.mark.skipif(not runs("bf16"), reason="needs AVX-512 with bfloat16")


@pytest.fixture(scope="module")
def fitting(smollm: ModelSource) -> ModelSource:
    """A model whose widths the vector kernels take, with the real vocabulary."""
    shape = {"heads": 3, "kv_heads": 1, "head_dim": 32, "vocab": smollm.config.vocab}
    model = tiny_llama({**shape, "tied": True})
    return ModelSource(model.config, smollm.tokenizer, model.get, "tiny")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without AVX-512."""
    monkeypatch.setattr("engine.backends.cpu.runs", lambda dtype: False)


def backend(source: ModelSource, dtype: str = "fp32", **options: object) -> CPUBackend:
    given: dict[str, object] = {"kv_dtype": "fp32", "kv_slots": 64 * BLOCK_SIZE, **options}
    return CPUBackend(source, dtype=dtype, **given)  # type: ignore[arg-type]


def refused(source: ModelSource, dtype: str, **options: object) -> str:
    with pytest.raises(UserError) as raised:
        backend(source, dtype, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@vector
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("kv_dtype", ["fp32", "bf16"])
def test_the_vector_kernels_are_chosen_where_they_run(
    fitting: ModelSource, dtype: str, kv_dtype: str
) -> None:
    assert backend(fitting, dtype, kv_dtype=kv_dtype).kernels == "vector"


def test_torch_is_chosen_elsewhere(fitting: ModelSource, elsewhere: None) -> None:
    assert backend(fitting).kernels == "torch"
    assert backend(fitting, "bf16").kernels == "torch"


def test_torch_can_be_asked_for(fitting: ModelSource) -> None:
    assert backend(fitting, kernels="torch").kernels == "torch"


def test_widths_that_are_no_multiples_of_32_run_on_torch(tiny: ModelSource) -> None:
    """48 hidden, 80 intermediate, heads of 8."""
    assert backend(tiny).kernels == "torch"


@pytest.mark.parametrize("block_size", [1, 8, 24])
def test_blocks_that_are_not_whole_pages_run_on_torch(
    fitting: ModelSource, block_size: int
) -> None:
    assert backend(fitting, block_size=block_size).kernels == "torch"


@vector
def test_blocks_of_several_pages_run_on_the_vector_kernels(fitting: ModelSource) -> None:
    assert backend(fitting, block_size=64).kernels == "vector"


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_quantised_weights_need_the_vector_kernels(
    fitting: ModelSource, dtype: str, elsewhere: None
) -> None:
    said = refused(fitting, dtype)
    assert f"{dtype} needs a CPU with AVX-512" in said
    assert "use fp32 or bf16" in said


def test_quantised_weights_need_widths_that_fit(tiny: ModelSource) -> None:
    assert "widths are multiples of 32" in refused(tiny, "int8")


@vector
def test_quantised_weights_need_blocks_of_whole_pages(fitting: ModelSource) -> None:
    said = refused(fitting, "int8", block_size=20)
    assert "KV blocks of 16 tokens or a multiple (here 20)" in said


def test_vector_kernels_asked_for_where_they_do_not_run(
    fitting: ModelSource, tiny: ModelSource, elsewhere: None
) -> None:
    for source in (fitting, tiny):
        assert "use --kernels auto or torch" in refused(source, "fp32", kernels="vector")


def test_unknown_names_list_the_known(fitting: ModelSource) -> None:
    assert "use one of bf16, fp32, int4, int8" in refused(fitting, "fp8")
    assert "use one of bf16, fp32" in refused(fitting, "fp32", kv_dtype="int8")
    assert "use one of auto, torch, vector" in refused(fitting, "fp32", kernels="cuda")


def tokens_of(
    make_engine: MakeEngine, source: ModelSource, used: CPUBackend, scheduler: str
) -> dict[int, list[int]]:
    engine, recording = make_engine(
        source, used, scheduler=scheduler, blocks=64, max_batch=4, chunk_tokens=32
    )
    rng = random.Random(5)
    for length in (1, 70, 16, 33, 120, 5):
        prompt = tuple(rng.choices(range(source.config.vocab), k=length))
        engine.submit(Request(prompt, SamplingParams(24, ignore_eos=True)))
    run_all(engine)
    return recording.tokens


@vector
@pytest.mark.parametrize("scheduler", ["static", "continuous", "chunked"])
def test_both_kinds_of_kernels_write_the_same_text(
    fitting: ModelSource, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, scheduler: str
) -> None:
    """Greedy, in fp32, through the whole engine."""
    here = backend(fitting)
    monkeypatch.setattr("engine.backends.cpu.runs", lambda dtype: False)
    elsewhere = backend(fitting)
    assert (here.kernels, elsewhere.kernels) == ("vector", "torch")
    found = tokens_of(make_engine, fitting, here, scheduler)
    assert found == tokens_of(make_engine, fitting, elsewhere, scheduler)
    assert len({tuple(tokens) for tokens in found.values()}) == 6
