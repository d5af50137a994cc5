"""Whole engines on the Triton path in Triton's interpreter, beside torch's: prints JSON.

A process of its own, since the interpreter is chosen before triton is imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from engine.backends.base import Backend
from engine.backends.cpu import CPUBackend
from engine.block_manager import BlockManager
from engine.engine import Engine
from engine.models.config import LlamaConfig
from engine.models.names import DEFAULT_MODEL
from engine.models.random_weights import random_reader
from engine.models.text import text_of
from engine.models.weights import ModelSource
from engine.request import Request, SamplingParams
from engine.step_record import Accounting, Peaks
from kernels.checking.interpreter import interpret
from tests.engine.recording import Recording, run_all

BLOCK_SIZE = 4
CONFIG = LlamaConfig(
    name="odd",
    layers=2,
    hidden=36,
    intermediate=50,
    heads=6,
    kv_heads=2,
    head_dim=10,
    vocab=131,
    max_context=64,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    tied_embeddings=False,
)
PROMPTS = (19, 3, 11, 6)
OUTPUTS = (7, 10, 8, 9)
HOT = 3  # the request that samples, from a seed of its own


def source() -> ModelSource:
    read = random_reader(CONFIG, torch.device("cpu"), torch.float32)
    return ModelSource(CONFIG, text_of(DEFAULT_MODEL)[0], read, CONFIG.name)


def triton_backend(kv_blocks: int, dtype: str = "fp32", max_batch: int = 3) -> Backend:
    from engine.backends.cuda import CUDABackend

    return CUDABackend(
        source(),
        dtype=dtype,
        kv_dtype=dtype,
        kv_slots=kv_blocks * BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        max_batch=max_batch,
        device=torch.device("cpu"),
    )


def torch_backend(kv_blocks: int) -> Backend:
    return CPUBackend(
        source(),
        dtype="fp32",
        kv_dtype="fp32",
        kv_slots=kv_blocks * BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        kernels="torch",
    )


def run(backend: Backend, kv_blocks: int, scheduler: str, chunk_tokens: int) -> dict[str, Any]:
    """Four requests to their end: their tokens and what the steps were."""
    recording = Recording()
    engine = Engine(
        backend,
        BlockManager(kv_blocks, BLOCK_SIZE),
        Accounting(CONFIG.spec(), "fp32", "fp32", Peaks(1e12, 1e11)),
        text_of(DEFAULT_MODEL)[0],
        recording,
        recording.messages.append,
        scheduler=scheduler,
        max_batch=3,
        chunk_tokens=chunk_tokens,
    )
    generator = torch.Generator().manual_seed(4)
    for at, (length, output) in enumerate(zip(PROMPTS, OUTPUTS, strict=True)):
        prompt = torch.randint(0, CONFIG.vocab, (length,), generator=generator).tolist()
        how = SamplingParams(output, 0.8 if at == HOT else 0.0, 0.9, seed=at, ignore_eos=True)
        engine.submit(Request(tuple(prompt), how))
    run_all(engine)
    return {
        "tokens": recording.tokens,
        "phases": sorted({step.phase for step in recording.steps}),
        "preemptions": sum(step.preemptions for step in recording.steps),
        "padded": sum(step.padded_slots for step in recording.steps),
        "steps": len(recording.steps),
    }


def main() -> None:
    interpret()
    torch.set_num_threads(1)
    found = {
        "torch": run(torch_backend(32), 32, "continuous", 256),
        "tight": run(triton_backend(11), 11, "chunked", 5),
        "calm": run(triton_backend(32), 32, "static", 256),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
