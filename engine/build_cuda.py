"""From a configuration to an engine on this machine's GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from engine.block_manager import BlockManager
from engine.built import BuiltEngine
from engine.config import AUTO, EngineConfig
from engine.cuda_device import cuda_device, measure_peaks
from engine.engine import Engine
from engine.errors import UserError
from engine.memory import KVSize, kv_size, weight_bytes
from engine.messages import TokenMessage
from engine.models.loader import open_model
from engine.physics.model_spec import ModelSpec
from engine.quantisation import math_dtype
from engine.real_run import real_run
from engine.row_invariance import probe
from engine.sink import Sink
from engine.step_record import Accounting, Peaks

USABLE_MEMORY = 0.9  # of what is free: the rest is for activations, graphs and cuBLAS
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def build_cuda_engine(
    config: EngineConfig,
    sink: Sink,
    emit: Callable[[TokenMessage], None],
    progress: Callable[[str, float | None], None],
) -> BuiltEngine:
    """Raises UserError where there is no GPU, and for what does not run or fit on it."""
    device, config = cuda_device(), resolved(config)
    from engine.backends.cuda import CUDABackend

    math = _DTYPES[math_dtype(config.dtype)]
    progress("measuring the GPU", None)
    peaks = measure_peaks(device, math)
    torch.cuda.empty_cache()
    progress("reading the model", None)
    source = open_model(config.model, device, math)
    spec = source.config.spec()
    size = device_kv_size(config, spec, torch.cuda.mem_get_info(device)[0])
    backend = CUDABackend(
        source,
        dtype=config.dtype,
        kv_dtype=config.kv_dtype,
        kv_slots=size.capacity * config.block_size,
        block_size=config.block_size,
        max_batch=config.max_batch,
        device=device,
        progress=lambda fraction: progress("loading the weights", fraction),
    )
    progress("trying the kernels", None)
    invariance = probe(backend, spec, size.capacity * config.block_size, config.block_size)
    backend.runner.capture(lambda fraction: progress("recording CUDA graphs", fraction))
    blocks = BlockManager(size.capacity, config.block_size)
    if size.offered < size.capacity:
        blocks.resize(size.offered)
    remedy = "start again: the GPU's peaks are measured at every start"
    engine = Engine(
        backend,
        blocks,
        Accounting(
            spec,
            config.dtype,
            config.kv_dtype,
            Peaks(peaks.flops, peaks.bandwidth, remedy=remedy),
        ),
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
        device=torch.cuda.get_device_name(device),
        peak_flops=peaks.flops,
        peak_bandwidth=peaks.bandwidth,
        more={},
    )
    return BuiltEngine(engine, source.tokenizer, spec, run, source.path)


def resolved(config: EngineConfig) -> EngineConfig:
    """With the dtypes that auto stands for. Raises UserError for two that do not go together."""
    dtype = "bf16" if config.dtype == AUTO else config.dtype
    math = math_dtype(dtype)
    kv_dtype = math if config.kv_dtype == AUTO else config.kv_dtype
    if kv_dtype not in (math, "fp8"):
        raise UserError(
            f"kv-dtype {kv_dtype} does not go with dtype {dtype} on a GPU: use {math} or fp8"
        )
    return replace(config, dtype=dtype, kv_dtype=kv_dtype)


def device_kv_size(config: EngineConfig, spec: ModelSpec, free_bytes: int) -> KVSize:
    """The cache: the blocks that were asked for, else all that fit in USABLE_MEMORY of what is free
    beside the weights. Raises UserError where not even one fits."""
    usable_bytes = int(USABLE_MEMORY * free_bytes)
    if config.kv_blocks is None:
        room_bytes = int(usable_bytes - weight_bytes(config, spec))
        config = replace(config, kv_memory_bytes=max(room_bytes, config.kv_memory_bytes))
    return kv_size(config, spec, usable_bytes)
