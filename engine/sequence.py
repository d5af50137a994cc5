"""A request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.request import Request
from telemetry.schema import RequestRecord


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens known so far, how many of them the KV cache holds, and where.

    Computed tokens chase known tokens: a prompt is many known, uncomputed tokens; a decoding
    sequence is behind by one. There is no other difference between prefill and decode.
    """

    request_id: int
    request: Request
    token_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    block_table: list[int] = field(default_factory=list)
    slots: NDArray[np.int64] | None = None  # KV slot of each token, once blocks are reserved
    contiguous: bool = False
    slot: int | None = None
    admitted_ns: int | None = None
    first_token_ns: int | None = None
    finished_ns: int | None = None
    finish_reason: str | None = None

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_token_ids)

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def output_tokens(self) -> int:
        return len(self.token_ids) - self.prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.prompt_tokens :]

    @property
    def uncomputed(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def in_prefill(self) -> bool:
        return self.num_computed < self.prompt_tokens

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def max_tokens_total(self) -> int:
        """Prompt and longest output; the last token is never written to the cache."""
        return self.prompt_tokens + self.request.sampling.max_tokens

    def record(self) -> RequestRecord:
        return RequestRecord(
            request_id=self.request_id,
            arrived_ns=self.request.arrived_ns,
            admitted_ns=self.admitted_ns,
            first_token_ns=self.first_token_ns,
            finished_ns=self.finished_ns,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=0,
            output_tokens=self.output_tokens,
            finish_reason=self.finish_reason,
            preemptions=0,
            label=self.request.label,
        )
