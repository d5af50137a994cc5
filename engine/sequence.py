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
    sequence is behind by one; a preempted one is behind by all it knows. There is no other
    difference between prefill, decode and recompute.

    cached_tokens: of the prompt, found in the prefix cache when it was first admitted.
    recompute_until: positions below it were computed once already; 0: it was never preempted.
    prompt_tokens: length of the prompt, kept since every step asks for it.
    """

    request_id: int
    request: Request
    token_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    recompute_until: int = 0
    block_table: list[int] = field(default_factory=list)
    slots: NDArray[np.int64] | None = None  # KV slot of each token that the table holds
    capacity: int = 0  # tokens that the table holds
    contiguous: bool = False
    slot: int | None = None
    admitted_ns: int | None = None
    first_token_ns: int | None = None
    finished_ns: int | None = None
    finish_reason: str | None = None
    prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_token_ids)
        self.prompt_tokens = len(self.token_ids)

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
        """Prompt tokens, or tokens to recompute, are left. Else exactly one token is: a decode."""
        computed = self.num_computed
        return computed < self.prompt_tokens or computed < self.recompute_until

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def may_stop(self) -> bool:
        """Whether a token or a text may end it before its longest answer."""
        sampling = self.request.sampling
        return bool(sampling.stop) or not sampling.ignore_eos

    @property
    def max_tokens_total(self) -> int:
        """Prompt and longest output; the last token is never written to the cache."""
        return self.prompt_tokens + self.request.sampling.max_tokens

    def hold(self, table: list[int], block_size: int) -> None:
        """The block table has grown to `table`; slots and contiguous follow."""
        held = len(self.block_table)
        fresh, last = table[held:], table[held - 1] if held else None
        if not fresh:
            return
        run = len(fresh) == 1 or fresh == list(range(fresh[0], fresh[0] + len(fresh)))
        follows = last is None or (self.contiguous and fresh[0] == last + 1)
        self.contiguous = run and follows
        self.block_table = table
        self._write_slots(fresh, held * block_size, block_size)

    def _write_slots(self, fresh: list[int], first: int, block_size: int) -> None:
        self.capacity = first + len(fresh) * block_size
        slots = self.slots
        if slots is None or len(slots) < self.capacity:
            # Long enough for the whole sequence, so that growing writes one block and copies none.
            longest = -(-self.max_tokens_total // block_size) * block_size
            grown = np.zeros(max(longest, self.capacity), dtype=np.int64)
            if slots is not None:
                grown[:first] = slots[:first]
            self.slots = slots = grown
        if len(fresh) == 1:  # a decode that goes on, as often as not
            start = fresh[0] * block_size
            slots[first : self.capacity] = np.arange(start, start + block_size)
            return
        starts = np.asarray(fresh, dtype=np.int64)[:, None] * block_size
        slots[first : self.capacity] = (starts + np.arange(block_size)).reshape(-1)

    def let_go(self) -> None:
        """The block table has been given back."""
        self.block_table, self.slots = [], None
        self.capacity, self.contiguous, self.slot = 0, False, None

    def record(self) -> RequestRecord:
        return RequestRecord(
            request_id=self.request_id,
            arrived_ns=self.request.arrived_ns,
            admitted_ns=self.admitted_ns,
            first_token_ns=self.first_token_ns,
            finished_ns=self.finished_ns,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            finish_reason=self.finish_reason,
            preemptions=self.preemptions,
            label=self.request.label,
        )
