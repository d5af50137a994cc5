"""Settings of one engine; frozen, and checked where they enter."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.errors import UserError
from engine.models.names import DEFAULT_MODEL
from engine.schedulers import (
    DEFAULT_CHUNK_TOKENS,
    check_chunk_tokens,
    check_max_batch,
    check_scheduler,
)
from engine.threads import check_threads

AUTO = "auto"
DTYPES = ("fp32", "bf16", "int8", "int4")  # int8 and int4: weights only
KV_DTYPES = ("fp32", "bf16")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """threads None: all cores. dtype 'auto': the faster one by calibration. Sizes in bytes.

    chunk_tokens: token budget of a step under `chunked`. kv_blocks None: what kv_memory_bytes
    hold.
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
        _check_name("dtype", self.dtype, DTYPES)
        _check_name("kv-dtype", self.kv_dtype, KV_DTYPES)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _check_name(what: str, name: str, known: tuple[str, ...]) -> None:
    if name != AUTO and name not in known:
        raise UserError(f"unknown {what} '{name}': use one of {', '.join((AUTO, *known))}")


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise UserError(f"{name.replace('_', ' ')} is {value}: use 1 or more")
