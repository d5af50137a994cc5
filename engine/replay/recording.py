"""What replay needs of a recorded run, as plain data: it can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine.errors import UserError
from engine.physics.model_spec import ModelSpec
from engine.replay.steps import Steps
from engine.schedulers import check_chunk_tokens, check_max_batch, check_scheduler
from engine.workloads.workload import Piece

MAX_KV_BLOCKS = 10_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """One recorded request.

    due_ns: when it arrived; in a closed loop, when its load began. streams: of the closed loop
    that it belongs to, None where it arrived by the clock. pieces: what its prompt shares with
    others, as far as that is known.
    """

    due_ns: int
    prompt_tokens: int
    output_tokens: int
    streams: int | None = None
    label: str | None = None
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """What a replay may change. kv_blocks: those of the KV cache."""

    scheduler: str
    max_batch: int
    chunk_tokens: int
    kv_blocks: int
    prefix_cache: bool

    def __post_init__(self) -> None:
        check_scheduler(self.scheduler)
        check_max_batch(self.max_batch)
        check_chunk_tokens(self.chunk_tokens)
        if not 1 <= self.kv_blocks <= MAX_KV_BLOCKS:
            raise UserError(f"KV blocks is {self.kv_blocks}: use 1 to {MAX_KV_BLOCKS:,}")

    def changed(self, **changes: Any) -> Settings:
        """With those that are not None. Raises UserError for what cannot be."""
        return replace(self, **{k: v for k, v in changes.items() if v is not None})


@dataclass(frozen=True, slots=True)
class Recording:
    """A run that can be replayed. settings: those it ended with, most often its only ones.

    one_copy: see engine.step_record.Accounting. arrivals: in order of arrival. left_out: recorded
    requests that are not among them. notes: what is not as it was, for people.
    """

    run_id: str
    spec: ModelSpec
    dtype: str
    kv_dtype: str
    one_copy: bool
    peak_flops: float | None
    peak_bandwidth: float | None
    ttft_slo_s: float | None
    tpot_slo_s: float | None
    block_size: int
    settings: Settings
    arrivals: tuple[Arrival, ...]
    steps: Steps
    left_out: int = 0
    notes: tuple[str, ...] = ()
