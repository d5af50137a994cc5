"""How often a schedule changes an answer: python -m tests.exactness_report [--seeds 3].

Runs every case of tests/engine/exactness.py on the default model and prints, for each dtype and
kind of kernels, the requests and tokens compared, the ties and their gaps. Ends with an error at a
difference that is no tie. Seeds count from 0.
"""

from __future__ import annotations

import argparse

import torch

from engine.errors import UserError
from engine.models.loader import open_model
from engine.models.names import DEFAULT_MODEL
from engine.models.weights import ModelSource
from tests.engine.exactness import CASES
from tests.engine.ties import KINDS, Bench, Tally, make_backend


def main() -> None:
    parser = argparse.ArgumentParser(prog="exactness_report", description="ties per token")
    parser.add_argument("--seeds", type=int, default=1, help="workloads (default 1)")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, metavar="KIND")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    source = open_model(DEFAULT_MODEL)
    for kind in asked.kinds:
        report(source, kind, asked.seeds)


def report(source: ModelSource, kind: str, seeds: int) -> None:
    """Print a line for every case, and one for all."""
    try:
        backend = make_backend(source, kind)
    except UserError as error:
        print(f"{kind}: not measured, {error}")
        return
    total = Tally()
    for seed in range(seeds):
        bench = Bench(source, kind.split()[0], backend, seed)
        print(f"{kind} on {backend.kernels} kernels, seed {seed}: a tie up to {bench.bound:.1e}")
        for case in CASES:
            outcome, tally = bench.run(case)
            total += tally
            print(f"  {case.name:24} {tally}; {outcome.preemptions} preemptions", flush=True)
    print(f"{kind}: {total}", flush=True)


if __name__ == "__main__":
    main()
