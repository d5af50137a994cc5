"""From a configuration to an engine on a device that is not here. No torch, no numba.

Scheduler, blocks, records and load are those of a real engine; only the backend and the clock are
not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace

from engine.backends.modelled import ModelledBackend, StepParts
from engine.backends.synthetic import SyntheticTokens
from engine.batch import ScheduledBatch
from engine.block_manager import BlockManager
from engine.built import BuiltEngine
from engine.clock import ModelledClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.messages import TokenMessage
from engine.modelled_setup import ModelledSetup, modelled_setup
from engine.models.text import text_of
from engine.physics.deployment import Deployment
from engine.sink import Sink
from engine.step_record import Accounting, Peaks, step_cost
from telemetry.clock import now_ns, wall_now
from telemetry.schema import RunRecord


class DeploymentTime:
    """How long a batch takes on a deployment, by the cost model."""

    def __init__(self, accounting: Accounting, deployment: Deployment) -> None:
        self._accounting, self._deployment = accounting, deployment

    def __call__(self, batch: ScheduledBatch) -> StepParts:
        """The overhead is the host's; exchanging over links is part of the forward pass."""
        cost = step_cost(batch, self._accounting)
        times = self._deployment.step_times(self._accounting.spec, cost, batch.rows)
        return StepParts(times.overhead_s, times.t_step_s - times.overhead_s)


def build_modelled_engine(
    config: EngineConfig,
    sink: Sink,
    emit: Callable[[TokenMessage], None],
    progress: Callable[[str, float | None], None],
) -> BuiltEngine:
    """Raises UserError for a device, model or setting that does not work."""
    progress("modelling the device", None)
    setup = modelled_setup(config)
    tokenizer, named = text_of(config.model)
    accounting = _accounting(setup)
    clock = ModelledClock(now_ns(), paced=config.paced)
    backend = ModelledBackend(
        clock, DeploymentTime(accounting, setup.deployment), SyntheticTokens(tokenizer)
    )
    engine = Engine(
        backend,
        _blocks(setup, config.block_size),
        accounting,
        # A synthetic answer is as long as was asked for.
        replace(tokenizer, eos_token_ids=()),
        sink,
        emit,
        scheduler=config.scheduler,
        max_batch=config.max_batch,
        chunk_tokens=config.chunk_tokens,
        prefix_cache=config.prefix_cache,
        clock=clock,
    )
    run = _run_record(config, setup, clock.now_ns(), named)
    return BuiltEngine(engine, tokenizer, setup.spec, run, setup.model.name, as_recorded=True)


def _accounting(setup: ModelledSetup) -> Accounting:
    deployment = setup.deployment
    remedy = "the cost model is inconsistent; please report it with the run's config"
    peaks = Peaks(deployment.peak_flops, deployment.bandwidth, "datasheet", remedy)
    return Accounting(
        setup.spec, deployment.weight_dtype, deployment.kv_dtype, peaks, one_copy=True
    )


def _blocks(setup: ModelledSetup, block_size: int) -> BlockManager:
    blocks = BlockManager(setup.capacity, block_size)
    if setup.offered < setup.capacity:
        blocks.resize(setup.offered)
    return blocks


def _run_record(
    config: EngineConfig, setup: ModelledSetup, started_ns: int, tokenizer: str
) -> RunRecord:
    deployment = setup.deployment
    details = {
        "engine": config.to_json(),
        "assumptions": setup.assumptions(),
        "spec": asdict(setup.spec),
        "model_sources": dict(setup.model.sources),
        "kv_blocks": setup.offered,
        "kv_blocks_capacity": setup.capacity,
        "total_params": setup.spec.total_params,
        "weight_bytes": deployment.weight_bytes(setup.spec),
        "tokens": "synthetic",
        "tokenizer": tokenizer,
    }
    return RunRecord(
        started_wall=wall_now(),
        started_ns=started_ns,
        clock="modelled",
        source="embedded",
        model=setup.model.name,
        device=setup.device_title,
        backend=ModelledBackend.name,
        dtype=deployment.weight_dtype,
        kv_dtype=deployment.kv_dtype,
        peak_flops=deployment.peak_flops,
        peak_bandwidth=deployment.bandwidth,
        peaks_source="datasheet",
        ttft_slo_s=config.ttft_slo_s,
        tpot_slo_s=config.tpot_slo_s,
        config=json.dumps(details),
    )
