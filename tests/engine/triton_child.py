"""Whole engines on the Triton path in Triton's interpreter, beside torch's: prints JSON.

A process of its own, since the interpreter is chosen before triton is imported.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.backends.base import Backend
from engine.backends.cpu import CPUBackend
from engine.block_manager import BlockManager
from engine.engine import Engine
from engine.models.config import LlamaConfig
from engine.models.names import DEFAULT_MODEL
from engine.models.random_weights import random_reader
from engine.models.text import text_of
from engine.models.weights import ModelSource
from engine.quantisation import head_dtype
from engine.request import Request, SamplingParams
from engine.step_record import Accounting, Peaks
from kernels.checking.interpreter import interpret
from kernels.linear.pack import dequantised
from tests.engine.recording import Recording, run_all

if TYPE_CHECKING:
    from engine.backends.cuda import CUDABackend

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


EVEN = replace(CONFIG, name="even", hidden=64, intermediate=96, heads=4, head_dim=16)
"""Widths that have whole groups of int4."""
CPU = torch.device("cpu")
FIRST = ((5, 17, 99, 3, 64, 8), 4)


def source(config: LlamaConfig = CONFIG, rounded_as: str = "fp32") -> ModelSource:
    """rounded_as: the weights that a quantised dtype stands for, where it quantises."""
    exact = random_reader(config, CPU, torch.float32)

    def read(name: str) -> Tensor:
        tensor, head = exact(name), "lm_head" in name
        matrix = tensor.dim() == 2 and "embed" not in name
        dtype = head_dtype(rounded_as) if head else rounded_as
        return dequantised(tensor, dtype) if matrix else tensor

    return ModelSource(config, text_of(DEFAULT_MODEL)[0], read, config.name)


def triton_backend(
    kv_blocks: int, config: LlamaConfig = CONFIG, dtype: str = "fp32", kv_dtype: str = "fp32"
) -> CUDABackend:
    from engine.backends.cuda import CUDABackend

    return CUDABackend(
        source(config),
        dtype=dtype,
        kv_dtype=kv_dtype,
        kv_slots=kv_blocks * BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        max_batch=3,
        device=CPU,
    )


def torch_backend(kv_blocks: int, model: ModelSource | None = None) -> Backend:
    return CPUBackend(
        model or source(),
        dtype="fp32",
        kv_dtype="fp32",
        kv_slots=kv_blocks * BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        kernels="torch",
    )


def run(backend: Backend, kv_blocks: int, scheduler: str, chunk_tokens: int) -> dict[str, Any]:
    """Four requests to their end: their tokens and what the steps were."""
    engine, recording = _engine(backend, kv_blocks, scheduler, chunk_tokens)
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
        "kernels": sorted({sample.kernel for sample in recording.sampled["kernel_samples"]}),
    }


def first_tokens(backend: Backend) -> list[int]:
    """Of one short request alone."""
    engine, recording = _engine(backend, 8, "continuous", 256)
    prompt, output = FIRST
    engine.submit(Request(prompt, SamplingParams(output, ignore_eos=True)))
    run_all(engine)
    return recording.tokens[0]


def _engine(
    backend: Backend, kv_blocks: int, scheduler: str, chunk_tokens: int
) -> tuple[Engine, Recording]:
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
    return engine, recording


def counted(backend: CUDABackend) -> dict[str, int]:
    """How often the decode state is asked for a step, loaded whole, and given blocks; counts as the
    engine runs."""
    state, counts = backend.runner.state, {"prepare": 0, "_load": 0, "_grow": 0}

    def counting(name: str) -> None:
        method = getattr(state, name)

        def call(*arguments: Any) -> Any:
            counts[name] += 1
            return method(*arguments)

        setattr(state, name, call)

    for name in counts:
        counting(name)
    return counts


def in_dtype(dtype: str, kv_dtype: str) -> dict[str, list[int]]:
    """Beside torch in float32 on the weights that the dtype stands for."""
    exact = source(EVEN, dtype if dtype.startswith("int") else "fp32")
    return {
        "found": first_tokens(triton_backend(8, EVEN, dtype, kv_dtype)),
        "expected": first_tokens(torch_backend(8, exact)),
    }


def main() -> None:
    interpret()
    torch.set_num_threads(1)
    tight = triton_backend(11)
    counts = counted(tight)
    found = {
        "torch": run(torch_backend(32), 32, "continuous", 256),
        "tight": run(tight, 11, "chunked", 5),
        "calm": run(triton_backend(32), 32, "static", 256),
        "decodes": counts,
        "int8": in_dtype("int8", "bf16"),
        "int4": in_dtype("int4", "bf16"),
        "fp16": in_dtype("fp16", "fp8"),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
