"""One run of `engine_steps`, in the tree that PYTHONPATH names: a session without its model.

Prints JSON: steps, steps_per_s from the engine's start until the last record is in the database,
step_s (median of t_step_s of full decode steps), owner_cpu_us a step.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import app.wiring as wiring
from engine.config import EngineConfig
from engine.messages import Load

FULL_STEPS = """
SELECT median(t_step_s), count(*) FROM steps
WHERE run_id = $run AND phase = 'decode' AND decode_seqs = $slots"""


def run(slots: int, requests: int, load: Path, db: Path) -> dict[str, float]:
    wiring._ENGINE_MODULE = "engine_steps_child"
    config = EngineConfig(max_batch=slots, dtype="bf16", kv_dtype="bf16")
    session = wiring.Session(config, db, Load(str(load), concurrency=slots, requests=requests))
    try:
        while session.phase == "starting":
            session.wait(0.05)
        started_s, cpu_s = time.monotonic(), time.process_time()
        while session.phase == "ready" and session.load_done is None:
            session.wait(0.1)
        session.end_engine()
        assert session.failure is None, session.failure
        took_s, cpu_s = time.monotonic() - started_s, time.process_time() - cpu_s
        reader = session.store.reader()
        which = {"run": session.run_id}
        steps = reader.value("SELECT count(*) FROM steps WHERE run_id = $run", which)
        median_s = reader.value(FULL_STEPS, {**which, "slots": slots})
    finally:
        session.close()
    return {
        "steps": steps,
        "steps_per_s": steps / took_s,
        "step_s": median_s,
        "owner_cpu_us": cpu_s / steps * 1e6,
    }


if __name__ == "__main__":
    slots, requests, load, db = sys.argv[1:]
    print(json.dumps(run(int(slots), int(requests), Path(load), Path(db))))
