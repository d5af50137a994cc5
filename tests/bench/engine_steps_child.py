"""The engine process of `engine_steps`: the tree's own, but its model computes nothing.

Runs in trees of several ages, hence only what all of them have. argv: the three descriptors.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers

import engine.build
from engine.backends.base import Backend
from engine.batch import ScheduledBatch, StepOutput
from engine.block_manager import BlockManager
from engine.engine import Engine
from engine.physics.model_spec import ModelSpec
from engine.step_record import Accounting, Peaks
from engine.tokenizer import Tokenizer
from telemetry.clock import now_ns, wall_now
from telemetry.schema import RunRecord

CPU_FILE = "ENGINE_STEPS_CPU"
SPEC = ModelSpec("nothing", 32, 4096, 14336, 32, 8, 128, 128256, False, 131072)
BLOCKS, BLOCK_SIZE = 65536, 16


class NothingBackend(Backend):
    """No forward pass: what is left is the host's part of a step."""

    name = "nothing"

    def prepare(self, batch: ScheduledBatch) -> None: ...

    def forward(self, inputs: None) -> None: ...

    def sample(self, batch: ScheduledBatch, logits: None) -> StepOutput:
        decodes = getattr(batch, "decodes", None)
        if decodes is None:
            return StepOutput([7 for chunk in batch.chunks if chunk.samples])
        return StepOutput([7] * (len(decodes) + sum(c.samples for c in batch.others)))

    def forget(self, request_id: int) -> None: ...


def build(config: Any, sink: Any, emit: Any, progress: Any) -> Any:
    """Both shapes of BuiltEngine at once: the older one knows its tokenizer by its source."""
    fast = FastTokenizer(models.WordLevel({"a": 0, "?": 1}, "?"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = Tokenizer(fast, (), None, {})
    engine = Engine(
        NothingBackend(),
        BlockManager(BLOCKS, BLOCK_SIZE),
        Accounting(SPEC, "bf16", "bf16", Peaks(1e15, 1e18)),
        tokenizer,
        sink,
        emit,
        scheduler=config.scheduler,
        max_batch=config.max_batch,
    )
    source = SimpleNamespace(tokenizer=tokenizer)
    parts = {"source": source, "tokenizer": tokenizer, "spec": SPEC, "run": _run()}
    note("ready")
    return SimpleNamespace(engine=engine, model_path="", as_recorded=True, **parts)


def _run() -> RunRecord:
    texts = {"source": "embedded", "model": "nothing", "device": "none", "backend": "nothing"}
    return RunRecord(
        started_wall=wall_now(),
        started_ns=now_ns(),
        clock="real",
        **texts,
        dtype="bf16",
        kv_dtype="bf16",
        peak_flops=1e15,
        peak_bandwidth=1e18,
        peaks_source="datasheet",
        ttft_slo_s=None,
        tpot_slo_s=None,
        config="{}",
    )


def note(when: str) -> None:
    """CPU time of this process until now, seconds."""
    path = Path(os.environ[CPU_FILE])
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, when: time.process_time()}))


if __name__ == "__main__":
    engine.build.build_engine = build  # type: ignore[assignment]
    from app.engine_main import main

    code = main(sys.argv[1:])
    note("end")
    sys.exit(code)
