"""Paged KV cache: who owns which block. Pure bookkeeping, no torch.

A sequence reserves, when it is admitted, every block that it can ever need, and uses them one by
one as it grows: so a running sequence never waits for memory. A reservation is one contiguous run
where there is one, which lets attention read the cache without a copy.
"""

from __future__ import annotations

from engine.request import RequestError

_FREE, _RESERVED, _USED = 0, 1, 2


class IntegrityError(AssertionError):
    """The books do not balance: a bug, never a user's mistake."""


class BlockManager:
    """`num_blocks` blocks of `block_size` tokens."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise RequestError(
                f"the KV cache has {num_blocks} blocks of {block_size} tokens: use 1 or more"
            )
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._state = bytearray(num_blocks)
        self._tables: dict[int, list[int]] = {}
        self._in_use: dict[int, int] = {}
        self._num_free = num_blocks
        self._num_used = 0

    @property
    def num_used(self) -> int:
        return self._num_used

    @property
    def num_free(self) -> int:
        """Blocks that nobody uses or has reserved."""
        return self._num_free

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def can_reserve(self, tokens: int) -> bool:
        return self.blocks_for(tokens) <= self._num_free

    def can_ever_fit(self, tokens: int) -> bool:
        return self.blocks_for(tokens) <= self.num_blocks

    def reserve(self, owner: int, tokens: int) -> list[int]:
        """Reserve blocks for `tokens` tokens; the table, in order of positions."""
        if owner in self._tables:
            raise IntegrityError(f"sequence {owner} already has blocks")
        count = self.blocks_for(tokens)
        if count > self._num_free:
            raise IntegrityError(f"{count} blocks asked, {self._num_free} free")
        table = self._find(count)
        for block in table:
            self._state[block] = _RESERVED
        self._tables[owner] = table
        self._in_use[owner] = 0
        self._num_free -= count
        return table

    def use(self, owner: int, tokens: int) -> list[int]:
        """The sequence now holds `tokens` tokens; the blocks that this brings into use."""
        held = self._in_use[owner]
        needed = self.blocks_for(tokens)
        if needed <= held:
            return []
        table = self._tables[owner]
        if needed > len(table):
            raise IntegrityError(f"sequence {owner} needs {needed} blocks, reserved {len(table)}")
        fresh = table[held:needed]
        for block in fresh:
            self._state[block] = _USED
        self._in_use[owner] = needed
        self._num_used += len(fresh)
        return fresh

    def release(self, owner: int) -> list[int]:
        """Give everything back; the blocks that were in use."""
        table = self._tables.pop(owner)
        held = self._in_use.pop(owner)
        for block in table:
            self._state[block] = _FREE
        self._num_free += len(table)
        self._num_used -= held
        return table[:held]

    def _find(self, count: int) -> list[int]:
        run = self._state.find(bytes(count)) if count else 0
        if run >= 0:
            return list(range(run, run + count))
        free = (i for i, state in enumerate(self._state) if state == _FREE)
        return [next(free) for _ in range(count)]

    def check_integrity(self) -> None:
        """Raise IntegrityError unless every block has at most one owner and all counts agree."""
        seen: set[int] = set()
        for owner, table in self._tables.items():
            if seen.intersection(table) or len(set(table)) != len(table):
                raise IntegrityError(f"a block of sequence {owner} is owned twice")
            seen.update(table)
            held = self._in_use[owner]
            states = [_USED] * held + [_RESERVED] * (len(table) - held)
            if [self._state[b] for b in table] != states:
                raise IntegrityError(f"states of sequence {owner}'s blocks are wrong")
        free = self._state.count(_FREE)
        if free != self._num_free or free + len(seen) != self.num_blocks:
            raise IntegrityError(f"{free} blocks free, {self._num_free} counted")
        if self._state.count(_USED) != self._num_used:
            raise IntegrityError(f"{self._num_used} blocks counted as used")
