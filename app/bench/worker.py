"""Our side of a bench: one engine in a process of its own, `python -m app.bench.worker`.

The engine, its recorder and the pipe to the process that keeps the records are the product's.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from app.bench.driver import MAX_BATCH, EngineDriver, StepTotals
from app.bench.linears import linears_time_s
from app.bench.peers.peer_loop import Command, serve
from app.bench.quality import measure_quality
from app.bench.recording import recording_cost
from app.engine_main import HEADLESS_INTERVAL_S
from engine.calibration import device_name, huge_page_mode
from engine.config import EngineConfig
from telemetry.recorder import Recorder


class Worker:
    """The commands of our side."""

    def __init__(self, options: dict[str, Any]) -> None:
        pipe = Connection(options["telemetry_fd"], readable=False)
        self.recorder = Recorder(pipe.send_bytes, droppable=False, interval_s=HEADLESS_INTERVAL_S)
        config = EngineConfig(
            model=options["model"],
            dtype=options["dtype"],
            threads=options["threads"],
            max_batch=MAX_BATCH,
        )
        self.driver = EngineDriver(config, self.recorder)
        pipe.send(self.driver.built.run)  # before any record: the run that they belong to

    def facts(self) -> dict[str, Any]:
        """What the other end must know."""
        built = self.driver.built
        run, spec = built.run, built.spec
        backend: Any = self.driver.engine.backend
        blocks = self.driver.engine.queue.blocks
        return {
            "model": spec.name,
            "source": built.model_path,
            "dtype": run.dtype,
            "kv_dtype": run.kv_dtype,
            "device": device_name(),
            "huge_pages": huge_page_mode(),
            "kernels": backend.kernels,
            "calibration": json.loads(run.config)["calibration"],
            "peak_flops": run.peak_flops,
            "peak_bandwidth": run.peak_bandwidth,
            "max_context": spec.max_context,
            "vocab": spec.vocab,
            "kv_block_tokens": blocks.block_size,
            "kv_blocks": blocks.num_blocks,
            "spec": asdict(spec),
        }

    def decode(self, prompts: list[list[int]], steps: int) -> dict[str, Any]:
        totals = self.driver.decode(prompts, steps)
        return {"step_s": totals.time_s / totals.steps, **self._shares(totals)}

    def prefill(self, prompt: list[int]) -> dict[str, Any]:
        totals = self.driver.prefill(prompt)
        return {"time_s": totals.time_s, **self._shares(totals)}

    def _shares(self, totals: StepTotals) -> dict[str, Any]:
        run = self.driver.built.run
        peak_flops, bandwidth = run.peak_flops, run.peak_bandwidth
        return {
            "mfu": peak_flops and totals.flops / (totals.time_s * peak_flops),
            "mbu": bandwidth and totals.bytes / (totals.time_s * bandwidth),
            "kv_bytes": totals.kv_bytes / totals.steps,
        }

    def clients(
        self, prompts: list[list[int]], output_tokens: list[int], mode: str
    ) -> dict[str, Any]:
        batch = min(MAX_BATCH, len(prompts))
        done = self.driver.generate(prompts, output_tokens, scheduler=mode, max_batch=batch)
        return {"makespan_s": done.makespan_s, "steps": len(done.records)}

    def first_token(self, prompt: list[int]) -> dict[str, Any]:
        """When a first token was there, on the clock that all processes share."""
        return {"t_ns": self.driver.generate([prompt], [1]).first_token_ns}

    def telemetry(self, prompt: list[int], steps: int, pairs: int) -> dict[str, Any]:
        return recording_cost(self.driver, self.recorder, prompt, steps, pairs)

    def linears(self, prompt: list[int], calls: int) -> dict[str, Any]:
        """The linear layers alone, as a decode step of one sequence runs them."""
        self.driver.decode([prompt], 2)
        backend: Any = self.driver.engine.backend
        return {"time_s": statistics.median(linears_time_s(backend.runner, calls))}

    def quality(self, text: str, length: int, reference: str, write: bool) -> dict[str, Any]:
        return measure_quality(self.driver, text, length, Path(reference), write=write)

    def finish(self) -> dict[str, Any]:
        """Send every record."""
        self.recorder.close()
        return {}


def start(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Command]]:
    """Build the engine."""
    worker = Worker(options)
    names = ("decode", "prefill", "clients", "first_token", "telemetry", "linears", "quality")
    return worker.facts(), {name: getattr(worker, name) for name in (*names, "finish")}


if __name__ == "__main__":
    serve(start)
