"""python -m tests.soak [--minutes 30] [--seed 0] [--threads 1] [--json FILE]

Two thirds of the time a small random model in fp32, where steps are many; one third the default
model in bf16. Ends with 1 where a request, a block or memory was lost, or an answer changed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from engine.backends.cpu import CPUBackend
from engine.models.loader import open_model
from engine.models.names import DEFAULT_MODEL
from engine.models.weights import ModelSource
from telemetry.clock import NS_PER_S, now_ns
from tests.engine.random_model import random_model
from tests.soak.soak import BLOCK_SIZE, BLOCKS, GROWTH_BOUND_BYTES, Finished, Soak, Subject
from tests.soak.watch import MIB


def subject(source: ModelSource, dtype: str) -> Subject:
    backend = CPUBackend(source, dtype=dtype, kv_dtype=dtype, kv_slots=BLOCKS * BLOCK_SIZE)
    return Subject(source, backend, dtype, exact=backend.kernels == "vector")


def subjects() -> Iterator[tuple[Subject, float]]:
    """Each with its share of the time; one is in memory at a time."""
    source = open_model(DEFAULT_MODEL)
    yield subject(random_model(source, 32, 6, 2), "fp32"), 2 / 3
    yield subject(source, "bf16"), 1 / 3


def timer(duration_s: float) -> Finished:
    ends_ns = now_ns() + int(duration_s * NS_PER_S)
    return lambda: now_ns() >= ends_ns


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description="a long run under a random load")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=None, help="also write the result here")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    seed = random.SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    print(f"soak of {asked.minutes:g} minutes, seed {seed}", file=sys.stderr, flush=True)
    phases = []
    for each, share in subjects():
        phases.append(Soak(each, seed).run(timer(asked.minutes * 60 * share)))
    flat = all(phase["memory_is_flat"] for phase in phases)
    result = {"minutes": asked.minutes, "seed": seed, "threads": asked.threads, "phases": phases}
    text = json.dumps(result | {"passed": flat}, indent=2)
    print(text)
    if asked.json is not None:
        asked.json.write_text(text + "\n", encoding="utf-8")
    if not flat:
        print(f"memory grew by more than {GROWTH_BOUND_BYTES // MIB} MiB", file=sys.stderr)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
