"""What timing each kernel costs a step of the default model on the vector kernels.

    .venv/bin/python -m tests.bench.kernel_times_cost [--threads 2] [--json]

Decode steps with and without stamps take turns, so that a machine that changes its speed treats
both alike. `share` is what timing adds to the step it times; about one step a second of each phase
is timed, so over a second of steps of step_ms it costs `over_time`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import torch

from engine.backends.simd_runner import SimdRunner
from engine.batch import Chunk, ScheduledBatch
from engine.models.loader import open_model
from engine.models.names import DEFAULT_MODEL
from engine.request import Request
from engine.sequence import Sequence
from telemetry.clock import now_ns

BLOCK_SIZE, CONTEXT, STEPS = 16, 128, 200


def sequence(number: int) -> Sequence:
    """With blocks of its own, and a context that it has not computed: times don't depend on it."""
    blocks = -(-(CONTEXT + 1) // BLOCK_SIZE)
    made = Sequence(number, Request(tuple(range(100, 100 + CONTEXT + 1))))
    made.hold(list(range(number * blocks, (number + 1) * blocks)), BLOCK_SIZE)
    made.slot = number
    return made


def row(runner: SimdRunner, batch: int) -> dict[str, Any]:
    chunks = [Chunk(sequence(number), CONTEXT, 1) for number in range(batch)]
    inputs = runner.prepare(ScheduledBatch(chunks), 0)
    times: dict[bool, list[int]] = {False: [], True: []}
    for step in range(2 * STEPS + 20):
        timed = bool(step % 2)
        begun = now_ns()
        runner.forward(inputs, timed)
        if step >= 20:
            times[timed].append(now_ns() - begun)
    plain, with_stamps = (statistics.median(times[timed]) for timed in (False, True))
    kernels = sum(time.time_ns for time in runner.kernel_times()) / times[True][-1]
    added = with_stamps - plain
    return {
        "batch": batch,
        "step_ms": round(plain / 1e6, 4),
        "added_us": round(added / 1e3, 2),
        "share": round(added / plain, 5),
        "over_time": round(added / 1e9, 8),
        "kernels_of_forward": round(kernels, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What timing each kernel costs a step.")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    runner = SimdRunner(
        open_model(DEFAULT_MODEL),
        dtype="bf16",
        kv_dtype="bf16",
        kv_slots=32 * (CONTEXT + BLOCK_SIZE),
        progress=lambda _: None,
    )
    rows = [row(runner, batch) for batch in (1, 8, 32)]
    if given.json:
        print(json.dumps({"threads": given.threads, "kernel_times": rows}))
        return
    for found in rows:
        print("  ".join(f"{name} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
