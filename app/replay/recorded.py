"""From a recorded run's rows to what a replay needs of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from app.figures.data import records
from app.replay.loads import Loads
from engine.errors import UserError
from engine.physics.model_spec import ModelSpec
from engine.replay.recording import Arrival, Recording, Settings
from engine.replay.steps import Steps
from telemetry.queries import replay as queries
from telemetry.queries.summary import run_summary
from telemetry.reader import Reader
from telemetry.schema import PHASES


def pick_run(reader: Reader, run_id: str | None) -> str:
    """The run that was asked for, else the newest. Raises UserError."""
    known = queries.run_ids(reader)
    if not known:
        raise UserError("the file has no runs: record one with stepscope run --db FILE")
    if run_id is not None and run_id not in known:
        raise UserError(f"no run {run_id} in the file: use one of {', '.join(known)}")
    return run_id or known[0]


def read_recording(reader: Reader, run_id: str) -> Recording:
    """Raises UserError for a run that cannot be replayed, with the reason."""
    run = queries.run(reader, run_id) or {}
    config = json.loads(run["config"])
    if "spec" not in config:
        raise UserError(
            f"run {run_id} does not hold the shape of its model, as runs of older versions do "
            "not: record it again"
        )
    changes = queries.changes(reader, run_id)
    loads = Loads.of(changes)
    rows = queries.requests(reader, run_id)
    arrivals = tuple(_arrival(row, loads) for row in records(rows))
    if not arrivals:
        raise UserError(f"run {run_id} answered no request: record a longer run")
    return Recording(
        run_id=run_id,
        spec=ModelSpec.from_dict(config["spec"]),
        dtype=run["dtype"],
        kv_dtype=run["kv_dtype"],
        one_copy=run["backend"] == "modelled",
        peak_flops=run["peak_flops"],
        peak_bandwidth=run["peak_bandwidth"],
        ttft_slo_s=run["ttft_slo_s"],
        tpot_slo_s=run["tpot_slo_s"],
        block_size=config["engine"]["block_size"],
        settings=_settings(config, changes),
        arrivals=arrivals,
        steps=_steps(queries.steps(reader, run_id)),
        left_out=queries.asked(reader, run_id) - len(arrivals),
        notes=loads.notes(),
    )


def describe(reader: Reader, recording: Recording) -> dict[str, Any]:
    """What a prediction is held against: the run's own figures and settings."""
    return {
        "run_id": recording.run_id,
        "recorded": run_summary(reader, recording.run_id),
        "recorded_settings": asdict(recording.settings),
        "requests_left_out": recording.left_out,
        "notes": list(recording.notes),
    }


def _arrival(row: dict[str, Any], loads: Loads) -> Arrival:
    """label None is NULL in the file, which a frame may show as NaN."""
    label = row["label"] if isinstance(row["label"], str) else None
    prompt, arrived_ns = int(row["prompt_tokens"]), int(row["arrived_ns"])
    source = loads.source(arrived_ns, label, prompt)
    return Arrival(
        due_ns=arrived_ns if source.streams is None else source.began_ns,
        prompt_tokens=prompt,
        output_tokens=int(row["output_tokens"]),
        streams=source.streams,
        label=label,
        pieces=source.pieces,
    )


def _settings(config: dict[str, Any], changes: pd.DataFrame) -> Settings:
    """Those that the run began with, and then changed to."""
    engine = config["engine"]
    now = {name: engine[name] for name in ("scheduler", "max_batch", "chunk_tokens")}
    now |= {"prefix_cache": engine["prefix_cache"], "kv_blocks": config["kv_blocks"]}
    for kind, detail in zip(changes["kind"], changes["detail"], strict=True):
        name = "scheduler" if kind == "scheduler_switch" else kind
        if name in now:
            now[name] = json.loads(detail)["to"]
    return Settings(**now)


def _steps(frame: pd.DataFrame) -> Steps:
    columns = {
        str(name): frame[name].to_numpy(dtype=float)
        for name in frame
        if name not in ("phase", "held_up")
    }
    phase = np.array([PHASES.index(p) for p in frame["phase"]], dtype=np.int64)
    return Steps(phase=phase, held_up=frame["held_up"].to_numpy(dtype=bool), **columns)
