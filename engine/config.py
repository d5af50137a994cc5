"""Settings of one engine; frozen, and checked where they enter."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.errors import UserError
from engine.models.names import DEFAULT_MODEL
from engine.schedulers import check_max_batch, check_scheduler
from engine.threads import check_threads


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """threads None: all cores. dtype 'auto': the faster one by calibration. Sizes in bytes."""

    model: str = DEFAULT_MODEL
    dtype: str = "auto"
    kv_dtype: str = "auto"
    scheduler: str = "continuous"
    max_batch: int = 16
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
        for name in ("block_size", "kv_memory_bytes"):
            _at_least_one(name, getattr(self, name))
        if self.kv_blocks is not None:
            _at_least_one("kv_blocks", self.kv_blocks)
        if self.threads is not None:
            check_threads(self.threads)
        for name, known in (("dtype", ("auto", "fp32", "bf16")), ("kv_dtype", _KV_DTYPES)):
            if getattr(self, name) not in known:
                raise UserError(
                    f"unknown {name.replace('_', '-')} '{getattr(self, name)}': "
                    f"use one of {', '.join(known)}"
                )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_KV_DTYPES = ("auto", "fp32", "bf16")


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise UserError(f"{name.replace('_', ' ')} is {value}: use 1 or more")
