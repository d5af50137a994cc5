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
    prompt_tokens: length of the prompt; max_tokens_total: with the longest output, whose last token
    is never written to the cache; may_stop: a token or a text may end it sooner. Kept, since every
    step asks for them.
    """

    request_id: int
    request: Request
    token_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    recompute_until: int = 0
    block_table: list[int] = field(default_factory=list)
    block_size: int = 0
    capacity: int = 0  # tokens that the table holds
    contiguous: bool = False
    slot: int | None = None
    admitted_ns: int | None = None
    first_token_ns: int | None = None
    finished_ns: int | None = None
    finish_reason: str | None = None
    prompt_tokens: int = field(init=False)
    max_tokens_total: int = field(init=False)
    may_stop: bool = field(init=False)
    _slots: NDArray[np.int64] | None = None
    _written: int = 0  # blocks whose slots are in _slots

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_token_ids)
        self.prompt_tokens = len(self.token_ids)
        sampling = self.request.sampling
        self.max_tokens_total = self.prompt_tokens + sampling.max_tokens
        self.may_stop = bool(sampling.stop) or not sampling.ignore_eos

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

    def hold(self, table: list[int], block_size: int) -> None:
        """The block table has grown to `table`; capacity and contiguous follow."""
        held = len(self.block_table)
        fresh, last = table[held:], table[held - 1] if held else None
        if not fresh:
            return
        run = len(fresh) == 1 or fresh == list(range(fresh[0], fresh[0] + len(fresh)))
        follows = last is None or (self.contiguous and fresh[0] == last + 1)
        self.contiguous = run and follows
        self.block_table, self.block_size = table, block_size
        self.capacity = len(table) * block_size

    @property
    def slots(self) -> NDArray[np.int64] | None:
        """KV slot of each of the first `capacity` tokens; None without a table.

        Written when somebody asks: a modelled device has no use for them.
        """
        if self._written < len(self.block_table):
            self._write_slots(self.block_table[self._written :], self._written * self.block_size)
        return self._slots

    @slots.setter
    def slots(self, slots: NDArray[np.int64] | None) -> None:
        """Slots of one's own choice, for a sequence without a table."""
        self._slots, self._written = slots, len(self.block_table)

    def _write_slots(self, fresh: list[int], first: int) -> None:
        slots = self._slots
        if slots is None or len(slots) < self.capacity:
            # Long enough for the whole sequence, so that growing writes one block and copies none.
            longest = -(-self.max_tokens_total // self.block_size) * self.block_size
            grown = np.zeros(max(longest, self.capacity), dtype=np.int64)
            if slots is not None:
                grown[:first] = slots[:first]
            self._slots = slots = grown
        starts = np.asarray(fresh, dtype=np.int64)[:, None] * self.block_size
        slots[first : self.capacity] = (starts + np.arange(self.block_size)).reshape(-1)
        self._written = len(self.block_table)

    def let_go(self) -> None:
        """The block table has been given back."""
        self.block_table, self._slots, self._written = [], None, 0
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
