"""A whole step on the vector kernels: beside transformers and torch, and in any schedule."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.backends.cpu import CPUBackend
from engine.backends.runner import Runner
from engine.batch import Chunk, ScheduledBatch
from engine.models.weights import ModelSource
from kernels.simd.support import runs
from tests.engine.tiny_llama import (
    SHAPES,
    TinyLlama,
    last_logits,
    make_runner,
    prompt,
    sequence,
    step,
    tables,
    tiny_llama,
)

pytestmark = pytest.mark.skipif(not runs("bf16"), reason="needs AVX-512 with bfloat16")

DTYPES = [(w, kv) for w in ("fp32", "bf16", "int8", "int4") for kv in ("fp32", "bf16")]
LENGTHS = (1, 2, 15, 16, 17, 63, 255, 256, 257, 300)


@lru_cache
def tiny(shape: str) -> TinyLlama:
    return tiny_llama(SHAPES[shape])


@lru_cache
def runner_of(shape: str, dtype: str, kv_dtype: str, kernels: str = "vector") -> Runner:
    return make_runner(kernels, tiny(shape), dtype, kv_dtype)


@pytest.fixture(params=DTYPES, ids="-".join)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """One whose weights do not change with the number of rows: see test_quantisation."""
    found: Any = runner_of("grouped, 64, tied", *request.param)
    limit, found.model.few_rows_limit = found.model.few_rows_limit, 1 << 30
    yield found
    found.model.few_rows_limit = limit


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def error(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest logit."""
    return ((found - expected).abs().max() / expected.abs().max()).item()


# --- against transformers and torch ---


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_agree_with_transformers_and_torch(shape: str) -> None:
    model = tiny(shape)
    tokens = prompt(model.config, max(LENGTHS))
    every = model.logits(tokens)
    vector, plain = (runner_of(shape, "fp32", "fp32", kind) for kind in ("vector", "torch"))
    for length in LENGTHS:
        found = last_logits(vector, tokens[:length])
        assert error(found, every[length - 1]) < 1e-5, length
        assert error(found, last_logits(plain, tokens[:length])) < 1e-5, length


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kv_dtype", ["fp32", "bf16"])
def test_bf16_is_as_near_to_transformers_as_torchs_bf16(shape: str, kv_dtype: str) -> None:
    """Both round to 8 bits, the kernels less often: they keep the residual stream in float32."""
    model = tiny(shape)
    tokens = prompt(model.config, 200)
    every = model.logits(tokens)
    vector, plain = (runner_of(shape, "bf16", kv_dtype, kind) for kind in ("vector", "torch"))
    off = {
        runner.kernels: sum(
            error(last_logits(runner, tokens[:n]), every[n - 1]) for n in LENGTHS[:6]
        )
        for runner in (vector, plain)
    }
    assert 0 < off["vector"] < off["torch"]


def test_a_page_read_in_place_of_another_is_caught() -> None:
    """A planted error: the block table is shifted after the prompt was written."""
    model = tiny("grouped, 64, tied")
    runner, tokens = runner_of("grouped, 64, tied", "fp32", "fp32"), prompt(model.config, 100)
    held = sequence(tokens, range(7))
    step(runner, Chunk(held, 0, 99))
    assert held.slots is not None
    held.slots[32:48] += 16
    assert error(step(runner, Chunk(held, 99, 1))[0], model.logits(tokens)[-1]) > 1e-3


# --- the same bits, whatever runs beside them ---


def test_a_prompt_in_any_chunks_and_any_blocks(runner: Runner) -> None:
    tokens = prompt(runner.model.config, 300)
    whole = last_logits(runner, tokens)
    scattered = next(tables(300, 900))
    for cuts in ([299], [1, 2, 3, 17], [256], [100, 228], range(1, 300, 37)):
        assert torch.equal(last_logits(runner, tokens, cuts), whole)
        assert torch.equal(last_logits(runner, tokens, cuts, scattered), whole)


def test_a_decode_is_the_prompts_last_row(runner: Runner) -> None:
    """Token by token, as output grows, against the same tokens as one prompt."""
    tokens = prompt(runner.model.config, 40)
    for length in range(2, 41):
        decoded = last_logits(runner, tokens[:length], range(1, length))
        assert torch.equal(decoded, last_logits(runner, tokens[:length]))


def test_sequences_in_one_batch_are_as_if_alone(runner: Runner) -> None:
    """Prompts, chunks in the middle, and decodes in one step; also when the order is turned."""
    lengths = (1, 40, 17, 300, 16, 257, 90)
    starts = (0, 0, 16, 299, 3, 200, 89)
    held = [
        sequence(prompt(runner.model.config, n, seed=n), table)
        for n, table in zip(lengths, tables(*lengths), strict=True)
    ]
    alone = [last_logits(runner, s.token_ids, table=s.block_table) for s in held]
    for order in (range(7), range(6, -1, -1), (3, 0, 6, 1, 5, 2, 4)):
        chunks = [Chunk(held[i], starts[i], lengths[i] - starts[i]) for i in order]
        for i, found in zip(order, step(runner, *chunks), strict=True):
            assert torch.equal(found, alone[i]), lengths[i]


def test_decodes_in_batches_of_any_size(runner: Runner) -> None:
    most = 130
    lengths = [1 + i % 16 for i in range(most)]
    held = [
        sequence(prompt(runner.model.config, n, seed=i), table)
        for i, (n, table) in enumerate(zip(lengths, tables(*lengths), strict=True))
    ]
    alone = torch.stack([last_logits(runner, s.token_ids, table=s.block_table) for s in held])
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 31, 64, 65, most):
        for chosen in (slice(rows), slice(most - rows, most)):
            chunks = [Chunk(s, len(s.token_ids) - 1, 1) for s in held[chosen]]
            assert torch.equal(step(runner, *chunks), alone[chosen]), rows


def test_threads_do_not_show(runner: Runner) -> None:
    tokens = prompt(runner.model.config, 270)
    cuts = [200, 268, 269]
    with threads(1):
        one = last_logits(runner, tokens, cuts)
    for count in (2, 3):
        with threads(count):
            assert torch.equal(last_logits(runner, tokens, cuts), one)


def test_rows_of_padding_change_nothing(runner: Runner) -> None:
    """A static batch: prompts are filled up to the longest, and finished sequences run on."""
    config = runner.model.config
    lengths = (40, 9, 21)
    held = [
        sequence(prompt(config, n, seed=n), table)
        for n, table in zip(lengths, tables(48, 48, 48), strict=True)
    ]
    alone = [last_logits(runner, s.token_ids, table=s.block_table) for s in held]
    padded = step(runner, *(Chunk(s, 0, len(s.token_ids), 40 - len(s.token_ids)) for s in held))
    assert torch.equal(padded, torch.stack(alone))
    for s in held:  # decodes over the padding's KV
        s.token_ids.append(7)
    after = [last_logits(runner, s.token_ids, table=s.block_table) for s in held]
    step(runner, *(Chunk(s, 0, len(s.token_ids) - 1, 41 - len(s.token_ids)) for s in held))
    chunks = [Chunk(s, len(s.token_ids) - 1, 1, padded=s is held[1]) for s in held]
    assert torch.equal(step(runner, *chunks), torch.stack(after))


# --- buffers and threads of Python ---


def test_a_step_that_samples_nothing(runner: Runner) -> None:
    held = sequence(prompt(runner.model.config, 30), range(2))
    assert step(runner, Chunk(held, 0, 20)).shape == (0, runner.model.config.vocab)


def test_logits_are_overwritten_and_tokens_are_not(smollm: ModelSource) -> None:
    model = tiny("grouped, 64, tied")
    source = ModelSource(model.config, smollm.tokenizer, model.get, "tiny")
    backend = CPUBackend(source, dtype="fp32", kv_dtype="fp32", kv_slots=1024, kernels="vector")
    plans, kept, outputs = [], [], []
    for i, length in enumerate((9, 5, 40)):
        held = sequence(prompt(model.config, length, seed=i), range(3 * i, 3 * i + 3))
        held.request_id = i
        plans.append(ScheduledBatch([Chunk(held, 0, length)]))
    for plan in plans:
        logits = backend.forward(backend.prepare(plan))
        kept.append((logits, logits.clone()))
        outputs.append(backend.sample(plan, logits))
    best = [[int(clone[0].argmax())] for _, clone in kept]
    assert [output.token_ids for output in outputs] == best
    assert len({tuple(b) for b in best}) == 3
    assert not torch.equal(*kept[0])  # or nothing here was at stake


def test_buffers_grow_with_the_batch() -> None:
    """One row, then many, then one again: the same logits as from buffers of the right size."""
    model = tiny("alone, 32, untied")
    tokens = prompt(model.config, 257)
    used, fresh = (make_runner("vector", model, "fp32", "fp32") for _ in range(2))
    first = last_logits(used, tokens[:1])
    many = last_logits(used, tokens)
    assert torch.equal(last_logits(used, tokens[:1]), first)
    assert torch.equal(last_logits(fresh, tokens), many)


def test_two_models_in_two_python_threads() -> None:
    """Each step has a team of its own and lets the interpreter's lock go: none waits for ever."""
    model = tiny("alone, 32, untied")
    tokens = prompt(model.config, 60)
    runners = [make_runner("vector", model, "fp32", "fp32") for _ in range(2)]
    expected = last_logits(runners[0], tokens)
    found: list[list[Tensor]] = [[], []]

    def work(i: int) -> Callable[[], None]:
        return lambda: found[i].extend(last_logits(runners[i], tokens) for _ in range(20))

    with threads(2):
        started = [threading.Thread(target=work(i), daemon=True) for i in range(2)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(60)
    assert [len(f) for f in found] == [20, 20]
    assert all(torch.equal(logits, expected) for f in found for logits in f)


def test_parts_of_a_step_run_again() -> None:
    """As bench does to time them: other parts are another function, all parts the same again."""
    from kernels.llama_step.fields import Part

    model = tiny("grouped, 64, tied")
    runner: Any = make_runner("vector", model, "fp32", "fp32")
    expected = last_logits(runner, prompt(model.config, 20))
    logits = torch.from_numpy(runner.model._logits.view(1, model.config.vocab))
    for part in (Part.LINEARS | Part.HEAD, Part.NORMS | Part.HEAD, Part.ALL ^ Part.ATTENTION):
        runner.model.run_again(part)
        assert not torch.equal(logits[0], expected)
        runner.model.run_again(Part.ALL)
        assert torch.equal(logits[0], expected)


def test_a_steps_inputs_live_until_the_next() -> None:
    """Compiled code has their addresses, which keep nothing alive."""
    model = tiny("grouped, 64, tied")
    runner = make_runner("vector", model, "fp32", "fp32")
    held = sequence(prompt(model.config, 20), range(2))
    inputs = runner.prepare(ScheduledBatch([Chunk(held, 0, 20)]), 0)
    kept = [weakref.ref(array) for array in (inputs.tokens, inputs.spans, inputs.keep[0])]
    runner.forward(inputs)
    del inputs
    assert all(ref() is not None for ref in kept)
    last_logits(runner, prompt(model.config, 5))
    assert all(ref() is None for ref in kept)


def test_a_cache_must_be_whole_pages() -> None:
    from engine.backends.simd import SimdCache

    with pytest.raises(ValueError, match="a cache of 40 slots is not whole pages of 16"):
        SimdCache(tiny("wide, 128, untied").config, 40, "fp32")
