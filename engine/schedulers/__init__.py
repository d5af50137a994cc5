"""Schedulers by name."""

from __future__ import annotations

from engine.errors import unknown
from engine.schedulers.base import Scheduler
from engine.schedulers.chunked import ChunkedScheduler
from engine.schedulers.continuous import ContinuousScheduler
from engine.schedulers.limits import (
    DEFAULT_CHUNK_TOKENS,
    MAX_BATCH,
    MAX_CHUNK_TOKENS,
    check_chunk_tokens,
    check_max_batch,
)
from engine.schedulers.no_batching import NoBatchingScheduler
from engine.schedulers.queue import SequenceQueue
from engine.schedulers.static import StaticScheduler

SCHEDULERS: dict[str, type[Scheduler]] = {
    cls.name: cls
    for cls in (NoBatchingScheduler, StaticScheduler, ContinuousScheduler, ChunkedScheduler)
}


def make_scheduler(name: str, queue: SequenceQueue) -> Scheduler:
    """Raises UserError naming the known schedulers."""
    check_scheduler(name)
    return SCHEDULERS[name](queue)


def check_scheduler(name: str) -> None:
    """Raise UserError unless the name is known."""
    if name not in SCHEDULERS:
        raise unknown("scheduler", name, SCHEDULERS)


__all__ = [
    "DEFAULT_CHUNK_TOKENS",
    "MAX_BATCH",
    "MAX_CHUNK_TOKENS",
    "SCHEDULERS",
    "Scheduler",
    "SequenceQueue",
    "check_chunk_tokens",
    "check_max_batch",
    "check_scheduler",
    "make_scheduler",
]
