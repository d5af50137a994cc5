"""From a configuration to an engine that can step: calibrate, load, size the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import psutil
import torch

from engine.backends.cpu import CPUBackend
from engine.block_manager import BlockManager
from engine.built import BuiltEngine
from engine.calibration import Calibration, best_dtype, best_kv_dtype, calibrate
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import UserError
from engine.memory import check_kv_size, kv_size
from engine.messages import TokenMessage
from engine.models.loader import open_model
from engine.quantisation import math_dtype
from engine.real_run import real_run
from engine.row_invariance import probe
from engine.sink import Sink
from engine.step_record import Accounting, Peaks
from engine.threads import available_cores, thread_count

Progress = Callable[[str, float | None], None]


def build_engine(
    config: EngineConfig,
    sink: Sink,
    emit: Callable[[TokenMessage], None],
    progress: Progress,
) -> BuiltEngine:
    """Raises UserError for a model, dtype or memory that does not work."""
    threads = config.threads or available_cores()
    torch.set_num_threads(threads)
    progress("reading the model", None)
    source = open_model(config.model)
    spec = source.config.spec()
    check_kv_size(config, spec, psutil.virtual_memory().available)  # calibrating takes its time
    calibration = calibrate(threads, force=config.recalibrate, progress=progress)
    config = _resolved(config, calibration, threads)
    size = kv_size(config, spec, psutil.virtual_memory().available)
    backend = CPUBackend(
        source,
        dtype=config.dtype,
        kv_dtype=config.kv_dtype,
        kv_slots=size.capacity * config.block_size,
        block_size=config.block_size,
        progress=lambda fraction: progress("packing the weights", fraction),
    )
    progress("trying the kernels", None)
    invariance = probe(backend, spec, size.capacity * config.block_size, config.block_size)
    blocks = BlockManager(size.capacity, config.block_size)
    if size.offered < size.capacity:
        blocks.resize(size.offered)
    engine = Engine(
        backend,
        blocks,
        Accounting(spec, config.dtype, config.kv_dtype, _peaks(calibration, config)),
        source.tokenizer,
        sink,
        emit,
        scheduler=config.scheduler,
        max_batch=config.max_batch,
        chunk_tokens=config.chunk_tokens,
        prefix_cache=config.prefix_cache,
    )
    run = real_run(
        config,
        spec,
        size,
        invariance,
        device=f"{calibration.device}, {thread_count(calibration.threads)}",
        peak_flops=calibration.dtypes[math_dtype(config.dtype)].peak_flops,
        peak_bandwidth=calibration.peak_bandwidth,
        more={"calibration": calibration.model_dump(mode="json")},
    )
    return BuiltEngine(engine, source.tokenizer, spec, run, source.path)


def _resolved(config: EngineConfig, calibration: Calibration, threads: int) -> EngineConfig:
    dtype = best_dtype(calibration) if config.dtype == "auto" else config.dtype
    kv_dtype = best_kv_dtype(calibration, dtype) if config.kv_dtype == "auto" else config.kv_dtype
    if math_dtype(dtype) not in calibration.dtypes:
        raise UserError(
            f"{dtype} does not run on this machine: use {' or '.join(calibration.dtypes)}"
        )
    return replace(config, dtype=dtype, kv_dtype=kv_dtype, threads=threads)


def _peaks(calibration: Calibration, config: EngineConfig) -> Peaks:
    return Peaks(
        calibration.dtypes[math_dtype(config.dtype)].peak_flops,
        calibration.peak_bandwidth,
        remedy="start again with demo --recalibrate, or run stepscope calibrate --force "
        f"--threads {config.threads}",
    )
