"""The same tokens as transformers; test_exactness_tokens.py has those of every schedule."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from engine.backends.cpu import CPUBackend
from engine.batch import Chunk, ScheduledBatch
from engine.models.loader import default_model_path
from engine.models.weights import ModelSource
from engine.request import Request, SamplingParams
from engine.sequence import Sequence
from engine.workloads.prompts import PromptSource
from tests.engine.conftest import BLOCK_SIZE, MakeEngine
from tests.engine.recording import run_all
from tests.engine.ties import logits_of_last

LOGIT_TOLERANCE = 1e-3


def transformers_model(path: Path) -> object:
    from transformers import AutoModelForCausalLM

    if path.is_dir():
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()


def greedy(model: object, prompt: tuple[int, ...], count: int) -> list[int]:
    with torch.inference_mode():
        out = model.generate(  # type: ignore[attr-defined]
            torch.tensor([prompt]), max_new_tokens=count, do_sample=False, eos_token_id=None
        )
    return [int(t) for t in out[0, len(prompt) :]]


def test_logits_and_tokens_agree_with_transformers(
    smollm: ModelSource, smollm_fp32: CPUBackend, make_engine: MakeEngine
) -> None:
    """The issue's bound: 1e-3 absolute over a 200-token prompt, 64 greedy tokens identical."""
    model = transformers_model(default_model_path())
    prompt = PromptSource(smollm.tokenizer).cut(200, random.Random(7))
    with torch.inference_mode():
        every = model(torch.tensor([prompt])).logits[0]  # type: ignore[operator]
    for length in (1, 2, 50, 137, 200):
        difference = (logits_of_last(smollm_fp32, prompt[:length]) - every[length - 1]).abs().max()
        assert difference.item() < LOGIT_TOLERANCE, f"after {length} tokens"
    engine, recording = make_engine(smollm, smollm_fp32)
    engine.submit(Request(prompt, SamplingParams(64, ignore_eos=True)))
    run_all(engine)
    assert recording.tokens[0] == greedy(model, prompt, 64)


def test_a_hugging_face_folder_agrees_with_transformers(
    tiny_folder: Path, tiny: ModelSource, make_engine: MakeEngine
) -> None:
    """Untied head, odd sizes, grouped heads."""
    model = transformers_model(tiny_folder)
    backend = CPUBackend(tiny, dtype="fp32", kv_dtype="fp32", kv_slots=64 * BLOCK_SIZE)
    prompt = tuple(random.Random(1).choices(range(100, 40_000), k=200))
    with torch.inference_mode():
        every = model(torch.tensor([prompt])).logits[0]  # type: ignore[operator]
    assert (logits_of_last(backend, prompt) - every[-1]).abs().max().item() < LOGIT_TOLERANCE
    engine, recording = make_engine(tiny, backend, blocks=64)
    engine.submit(Request(prompt, SamplingParams(64, ignore_eos=True)))
    run_all(engine)
    assert recording.tokens[0] == greedy(model, prompt, 64)


def test_a_fragmented_block_table_gives_the_same_logits(tiny: ModelSource) -> None:
    """Blocks in any order: prefill and decode through the gather path equal the contiguous run."""
    backend = CPUBackend(tiny, dtype="fp32", kv_dtype="fp32", kv_slots=32 * BLOCK_SIZE)
    prompt = tuple(random.Random(2).choices(range(100, 40_000), k=50))
    expected = logits_of_last(backend, prompt)
    scattered = torch.randperm(32, generator=torch.Generator().manual_seed(5))[:5]
    slots = (scattered[:, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).reshape(-1)
    sequence = Sequence(0, Request(prompt[:49]))
    sequence.slots, sequence.contiguous, sequence.slot = slots.numpy(), False, 0
    backend.forward(backend.prepare(ScheduledBatch([Chunk(sequence, 0, 49)])))
    sequence.token_ids.append(prompt[49])
    found = backend.forward(backend.prepare(ScheduledBatch([Chunk(sequence, 49, 1)])))[0]
    assert (found - expected).abs().max().item() < 1e-5


@pytest.mark.parametrize("kv_dtype", ["fp32", "bf16"])
def test_bf16_weights_stay_near_fp32(
    smollm: ModelSource, smollm_fp32: CPUBackend, kv_dtype: str
) -> None:
    """bf16 rounds to 8 bits: the distribution moves a little (KL), the text stays sensible."""
    backend = CPUBackend(smollm, dtype="bf16", kv_dtype=kv_dtype, kv_slots=32 * BLOCK_SIZE)
    prompt = PromptSource(smollm.tokenizer).cut(120, random.Random(5))
    exact = torch.log_softmax(logits_of_last(smollm_fp32, prompt).double(), -1)
    rounded = torch.log_softmax(logits_of_last(backend, prompt).double(), -1)
    divergence = (exact.exp() * (exact - rounded)).sum().item()
    assert 0 < divergence < 0.02
