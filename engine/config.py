"""Settings of one engine; frozen, and checked where they enter."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.errors import UserError, unknown
from engine.models.names import DEFAULT_MODEL
from engine.schedulers import (
    DEFAULT_CHUNK_TOKENS,
    check_chunk_tokens,
    check_max_batch,
    check_scheduler,
)
from engine.threads import check_threads

AUTO = "auto"
BACKENDS = ("cpu", "cuda", "modelled")
DTYPES = ("fp32", "bf16", "int8", "int4")  # int8 and int4: weights only
KV_DTYPES = ("fp32", "bf16")
CUDA_DTYPES = ("fp32", "bf16", "fp16", "int8", "int4")
CUDA_KV_DTYPES = ("fp32", "bf16", "fp16", "fp8")
MODELLED_DTYPES = ("bf16", "fp16", "fp8", "int8", "int4", "fp32")
MODELLED_KV_DTYPES = ("bf16", "fp16", "fp8", "int8", "fp32")
MAX_OVERHEAD_S = 10.0
# What only a modelled device has; None or 1 leaves it to the device.
_MODELLED_ONLY = (
    *("device", "math_dtype", "tensor_parallel", "expert_parallel", "link_bandwidth"),
    *("matmul_fraction", "bandwidth_fraction", "overhead_s", "paced"),
)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """threads None: all cores. dtype 'auto': the faster one by calibration. Sizes in bytes.

    chunk_tokens: token budget of a step under `chunked`. kv_blocks None: what kv_memory_bytes
    hold, or the modelled device.

    backend cuda: the GPU of this machine; auto is bf16, and a KV cache of the same or fp8.

    backend modelled: a device and a model of the catalogue (see `engine.modelled_setup`); the
    fields from device to paced are its own. Fractions of peak None: what the device was seen to
    reach, or a usual value. link_bandwidth in bytes/s per direction. paced: held to real time.
    """

    model: str = DEFAULT_MODEL
    dtype: str = AUTO
    kv_dtype: str = AUTO
    scheduler: str = "continuous"
    max_batch: int = 16
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    prefix_cache: bool = False
    threads: int | None = None
    block_size: int = 16
    kv_blocks: int | None = None
    kv_memory_bytes: int = 1 << 30
    ttft_slo_s: float | None = 1.0
    tpot_slo_s: float | None = 0.1
    recalibrate: bool = False
    live: bool = False  # a live engine drops telemetry rather than wait; others wait
    backend: str = "cpu"
    device: str | None = None
    math_dtype: str = AUTO
    tensor_parallel: int = 1
    expert_parallel: int = 1
    link_bandwidth: float | None = None
    matmul_fraction: float | None = None
    bandwidth_fraction: float | None = None
    overhead_s: float | None = None
    paced: bool = False

    def __post_init__(self) -> None:
        check_scheduler(self.scheduler)
        check_max_batch(self.max_batch)
        check_chunk_tokens(self.chunk_tokens)
        for name in ("block_size", "kv_memory_bytes"):
            _at_least_one(name, getattr(self, name))
        if self.kv_blocks is not None:
            _at_least_one("KV blocks", self.kv_blocks)
        if self.threads is not None:
            check_threads(self.threads)
        for name, target_s in (("ttft", self.ttft_slo_s), ("tpot", self.tpot_slo_s)):
            _check_target(name, target_s)
        if self.backend not in BACKENDS:
            raise unknown("backend", self.backend, BACKENDS)
        if self.modelled:
            self._check_modelled()
        else:
            self._check_real()

    @property
    def modelled(self) -> bool:
        """Whether a cost model moves the clock, rather than work."""
        return self.backend == "modelled"

    def _check_real(self) -> None:
        cuda = self.backend == "cuda"
        _check_name("dtype", self.dtype, CUDA_DTYPES if cuda else DTYPES)
        _check_name("kv-dtype", self.kv_dtype, CUDA_KV_DTYPES if cuda else KV_DTYPES)
        if cuda and self.threads is not None:
            raise UserError("threads are of the CPU backend: leave them out of a run on a GPU")
        defaults = {f.name: f.default for f in fields(self)}
        given = [n for n in _MODELLED_ONLY if getattr(self, n) != defaults[n]]
        if given:
            raise UserError(
                f"{given[0].replace('_', '-')} is of a modelled device: give --backend modelled "
                "too, or leave it out"
            )

    def _check_modelled(self) -> None:
        _check_name("dtype", self.dtype, MODELLED_DTYPES)
        _check_name("kv-dtype", self.kv_dtype, MODELLED_KV_DTYPES)
        _check_name("math-dtype", self.math_dtype, MODELLED_DTYPES)
        if self.threads is not None:
            raise UserError("threads are of the CPU backend: leave them out of a modelled run")
        for name in ("tensor_parallel", "expert_parallel"):
            _at_least_one(name, getattr(self, name))
        for name in ("matmul_fraction", "bandwidth_fraction"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise UserError(
                    f"{name.replace('_', ' ')} is {value:g}: use more than 0 and at most 1"
                )
        if self.overhead_s is not None and not 0 <= self.overhead_s <= MAX_OVERHEAD_S:
            raise UserError(
                f"overhead is {self.overhead_s * 1e3:g} ms a step: use 0 to "
                f"{MAX_OVERHEAD_S * 1e3:,.0f} ms"
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _check_name(what: str, name: str, known: tuple[str, ...]) -> None:
    if name != AUTO and name not in known:
        raise UserError(f"unknown {what} '{name}': use one of {', '.join((AUTO, *known))}")


def _check_target(name: str, target_s: float | None) -> None:
    if target_s is not None and not 0 < target_s < math.inf:
        raise UserError(f"{name}-slo is {target_s * 1e3:g} ms: use more than 0")


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise UserError(f"{name.replace('_', ' ')} is {value}: use 1 or more")
