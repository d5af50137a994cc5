"""Who waits, who holds a slot. Schedulers come and go; this stays.

Sequences are admitted in order of request_id, and the one with the highest is preempted first. So
whoever waits arrived after everybody who runs, whatever the scheduler.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

from engine.batch import Chunk, Preemption
from engine.block_manager import BlockManager, IntegrityError
from engine.decodes import Decodes, Members
from engine.schedulers.limits import DEFAULT_CHUNK_TOKENS, check_chunk_tokens, check_max_batch
from engine.sequence import Sequence


class SequenceQueue:
    """Waiting sequences in order of arrival; running ones by slot, with their blocks."""

    def __init__(
        self, blocks: BlockManager, max_batch: int, chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    ) -> None:
        self.blocks = blocks
        self.waiting: deque[Sequence] = deque()
        self.slots: list[Sequence | None] = []
        self.max_batch = 0
        self.chunk_tokens = 0
        self._occupied: list[Sequence] = []  # in order of admission, which is that of arrival
        self._members: Members | None = None  # who decoded together last
        self.resize(max_batch)
        self.set_chunk_tokens(chunk_tokens)

    # --- limits ---

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

    def set_chunk_tokens(self, chunk_tokens: int) -> None:
        """The token budget of a step, for a scheduler that has one."""
        check_chunk_tokens(chunk_tokens)
        self.chunk_tokens = chunk_tokens

    # --- who is where ---

    @property
    def occupied(self) -> list[Sequence]:
        """Sequences that hold a slot, by arrival; of a static cohort also finished ones."""
        return list(self._occupied)

    @property
    def num_occupied(self) -> int:
        return len(self._occupied)

    @property
    def running(self) -> list[Sequence]:
        """Admitted and unfinished sequences, by arrival."""
        return [s for s in self._occupied if s.finish_reason is None]

    # --- admission ---

    def can_admit(self) -> bool:
        """Whether the first that waits fits: all it knows, a token more, and spare_blocks."""
        first = self.waiting[0].token_ids
        return self.blocks.can_open(first, len(first) + 1, self.spare_blocks())

    def spare_blocks(self) -> int:
        """Blocks that an admission leaves free, so that it does not push out others at once.

        What those that run still need for all they know, and one block more for each.
        """
        size, spare = self.blocks.block_size, 0
        for sequence in self.running:  # all slots, at every admission
            need = -(-len(sequence.token_ids) // size) + 1 - len(sequence.block_table)
            if need > 0:
                spare += need
        return spare

    def admit(self, expected_tokens: int = 0) -> Sequence:
        """Give the first that waits a slot, and a table that begins with its cached prefix.

        expected_tokens: how far it may grow if further than its longest answer.
        """
        sequence = self.waiting.popleft()
        owner, expected = sequence.request_id, max(expected_tokens, sequence.max_tokens_total)
        cached = self.blocks.open(owner, sequence.token_ids, expected)
        sequence.hold(self.blocks.table(owner), self.blocks.block_size)
        sequence.num_computed = cached
        if not sequence.preemptions:
            sequence.cached_tokens = cached
        sequence.slot = self.slots.index(None)
        self.slots[sequence.slot] = sequence
        self._occupied.append(sequence)
        return sequence

    # --- running ---

    def run_decodes(self, sequences: list[Sequence], starts: list[int]) -> Decodes | None:
        """A step of sequences that decode, going on at `starts`, each with room for its token.

        None, and nothing changed, where there are none, or not blocks enough for all of them.
        """
        pairs = zip(sequences, starts, strict=True)
        growing = [s for s, start in pairs if start >= s.capacity]
        if not sequences or len(growing) > max(0, self.blocks.num_free):
            return None
        for sequence in growing:
            self.grow(sequence, sequence.num_computed + 1)
        if self._members is None or self._members.sequences != sequences:
            self._members = Members(sequences)
        return Decodes(self._members, starts)

    def computed_decodes(self, decodes: Decodes, tokens: list[int]) -> None:
        """As `computed`, for all of them; each then knows its next token."""
        for sequence, token in zip(decodes.members.sequences, tokens, strict=True):
            sequence.num_computed += 1
            sequence.token_ids.append(token)
        if self.blocks.prefix_cache:
            full = np.flatnonzero(decodes.contexts % self.blocks.block_size == 0)
            for place in full.tolist():
                sequence = decodes.members.sequences[place]
                self.blocks.commit(sequence.request_id, sequence.token_ids, sequence.num_computed)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """The sequence's table holds `tokens` tokens; False and nothing changed where it cannot."""
        if tokens <= sequence.capacity:
            return True
        if not self.blocks.grow(sequence.request_id, tokens):
            return False
        sequence.hold(self.blocks.table(sequence.request_id), self.blocks.block_size)
        return True

    def computed(self, chunk: Chunk) -> None:
        """The chunk has run: its tokens are in the cache, and its full blocks can be shared."""
        sequence = chunk.sequence
        sequence.num_computed = end = chunk.end
        if end // self.blocks.block_size > chunk.start // self.blocks.block_size:
            self.blocks.commit(sequence.request_id, sequence.token_ids, end)

    def preempt(self, sequence: Sequence) -> Preemption:
        """Push the youngest that runs out: it keeps its tokens, waits first, computes all again."""
        if self.running[-1:] != [sequence]:
            raise IntegrityError(f"sequence {sequence.request_id} is not the youngest that runs")
        lost = Preemption(sequence, len(sequence.block_table), sequence.num_computed)
        self.release(sequence)
        sequence.recompute_until = max(sequence.recompute_until, sequence.num_computed)
        sequence.num_computed = 0
        sequence.preemptions += 1
        self.waiting.appendleft(sequence)
        return lost

    def release(self, sequence: Sequence) -> None:
        """Take slot and blocks away."""
        if sequence.slot is None:
            raise IntegrityError(f"sequence {sequence.request_id} holds no slot")
        self.slots[sequence.slot] = None
        self._occupied.remove(sequence)
        self.blocks.release(sequence.request_id)
        sequence.let_go()
        self._members = None  # the slot is not its own any more
        self._trim()

    # --- integrity ---

    def check_integrity(self) -> None:
        """Raise IntegrityError unless slots, sequences and blocks agree."""
        self.blocks.check_integrity()
        if [s for s in self.slots if s is not None] != sorted(
            self._occupied, key=lambda s: -1 if s.slot is None else s.slot
        ):
            raise IntegrityError("the slots do not hold those who run")
        if self.blocks.num_tables != len(self._occupied):
            raise IntegrityError("somebody without a slot has blocks")
        for slot, sequence in enumerate(self.slots):
            if sequence is not None:
                self._check_running(sequence, slot)
        order = [s.request_id for s in (*self.running, *self.waiting)]
        if any(a >= b for a, b in pairwise(order)):
            raise IntegrityError(f"not in order of arrival: {order}")

    def _check_running(self, sequence: Sequence, slot: int) -> None:
        name, size = f"sequence {sequence.request_id}", self.blocks.block_size
        table = self.blocks.table(sequence.request_id)
        if sequence.slot != slot:
            raise IntegrityError(f"{name} is not in slot {slot}")
        if sequence.block_table != table or sequence.capacity != len(table) * size:
            raise IntegrityError(f"{name} does not know its blocks")
        known = [] if sequence.slots is None else sequence.slots[: sequence.capacity].tolist()
        if known != [block * size + i for block in table for i in range(size)]:
            raise IntegrityError(f"{name} does not know its KV slots")
        if sequence.contiguous != (bool(table) and all(b == a + 1 for a, b in pairwise(table))):
            raise IntegrityError(f"{name} does not know whether its blocks are one run")
        if not sequence.num_computed <= min(sequence.capacity, len(sequence.token_ids) - 1):
            raise IntegrityError(f"{name} claims more computed tokens than it can have")
