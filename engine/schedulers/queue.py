"""Who waits, who holds a slot. Schedulers come and go; this stays."""

from __future__ import annotations

from collections import deque

import numpy as np

from engine.block_manager import BlockManager, IntegrityError
from engine.errors import UserError
from engine.sequence import Sequence

MAX_BATCH = 1024


def check_max_batch(max_batch: int) -> None:
    """Raise UserError unless so many slots can be offered."""
    if not 1 <= max_batch <= MAX_BATCH:
        raise UserError(f"max batch is {max_batch}: use 1 to {MAX_BATCH}")


MAX_CHUNK_TOKENS = 65536


def check_chunk_tokens(tokens: int) -> None:
    """Raise UserError unless a step can have that token budget."""
    if not 1 <= tokens <= MAX_CHUNK_TOKENS:
        raise UserError(f"token budget is {tokens}: use 1 to {MAX_CHUNK_TOKENS} tokens a step")


class SequenceQueue:
    """Waiting sequences in order of arrival, and running ones by slot."""

    def __init__(self, blocks: BlockManager, max_batch: int) -> None:
        self.blocks = blocks
        self.waiting: deque[Sequence] = deque()
        self.slots: list[Sequence | None] = []
        self.max_batch = 0
        self.released: list[tuple[int, list[int]]] = []  # (owner, blocks) since the last drain
        self.resize(max_batch)

    def resize(self, max_batch: int) -> None:
        """Offer max_batch slots. Sequences beyond them keep running until they end."""
        check_max_batch(max_batch)
        self.max_batch = max_batch
        self._trim()

    def _trim(self) -> None:
        while len(self.slots) < self.max_batch:
            self.slots.append(None)
        while len(self.slots) > self.max_batch and self.slots[-1] is None:
            self.slots.pop()

    @property
    def occupied(self) -> list[Sequence]:
        """Sequences that hold a slot, in order of slots; of a static cohort also finished ones."""
        return [s for s in self.slots if s is not None]

    @property
    def running(self) -> list[Sequence]:
        """Admitted and unfinished sequences, in order of slots."""
        return [s for s in self.slots if s is not None and not s.finished]

    def has_free_slot(self) -> bool:
        return len(self.occupied) < self.max_batch

    def admit(self, reserve_tokens: int) -> Sequence:
        """Give the first waiting sequence a slot and its blocks."""
        sequence = self.waiting.popleft()
        table = self.blocks.reserve(sequence.request_id, reserve_tokens)
        size = self.blocks.block_size
        starts = np.asarray(table, dtype=np.int64) * size
        sequence.block_table = table
        sequence.slots = (starts[:, None] + np.arange(size)).reshape(-1)
        sequence.contiguous = table == list(range(table[0], table[0] + len(table)))
        sequence.slot = self.slots.index(None)
        self.slots[sequence.slot] = sequence
        return sequence

    def release(self, sequence: Sequence) -> None:
        """Take slot and blocks away."""
        if sequence.slot is None:
            raise IntegrityError(f"sequence {sequence.request_id} holds no slot")
        self.slots[sequence.slot] = None
        sequence.slot = None
        self.released.append((sequence.request_id, self.blocks.release(sequence.request_id)))
        self._trim()

    def check_integrity(self) -> None:
        """Raise IntegrityError unless slots, sequences and blocks agree."""
        self.blocks.check_integrity()
        for slot, sequence in enumerate(self.slots):
            if sequence is not None and sequence.slot != slot:
                raise IntegrityError(f"sequence {sequence.request_id} is not in slot {slot}")
        waiting = {s.request_id for s in self.waiting}
        if waiting & {s.request_id for s in self.occupied}:
            raise IntegrityError("a sequence both waits and runs")
