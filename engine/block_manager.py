"""Paged KV cache: who holds which block. Pure bookkeeping, no torch.

A table gets its blocks as it grows; nothing is reserved. With the prefix cache on, full blocks of
computed tokens are known by their contents: a table that begins with the same tokens shares them,
and they stay after their last holder has gone, until another table needs the room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from engine.block_placement import Placement
from engine.errors import UserError
from engine.prefix_index import PrefixIndex


class IntegrityError(AssertionError):
    """The books do not balance: a bug, never a user's mistake."""


class BlockChange(NamedTuple):
    """A block's state after a change. request_id: its first holder, None if nobody holds it.

    position: its place in every table that holds it, and of what is cached; None while free.
    """

    block: int
    state: str
    request_id: int | None
    references: int
    position: int | None


class BlockManager:
    """`capacity` blocks of `block_size` tokens, of which `num_blocks` are offered.

    used: in at least one table. cached: in none, but its contents are known. Any blocks may be in
    use, at most `num_blocks` of them (more only right after resize has offered fewer).
    """

    def __init__(self, num_blocks: int, block_size: int, *, prefix_cache: bool = False) -> None:
        if num_blocks < 1 or block_size < 1:
            raise UserError(
                f"the KV cache has {num_blocks} blocks of {block_size} tokens: use 1 or more"
            )
        self.capacity = self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self.evictions = 0
        self._tables: dict[int, list[int]] = {}
        self._digests: dict[int, list[bytes]] = {}  # of the blocks of a table that are committed
        self._holders: list[list[int]] = [[] for _ in range(num_blocks)]
        self._positions = [0] * num_blocks  # a shared block has the same place in all its tables
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._index = PrefixIndex(block_size)
        self._placement = Placement(num_blocks)
        self._num_used = 0
        self._changed: dict[int, None] = {}

    # --- counts ---

    @property
    def num_used(self) -> int:
        """Blocks in at least one table."""
        return self._num_used

    @property
    def num_cached(self) -> int:
        """Blocks in no table that are kept for their contents."""
        return len(self._cached)

    @property
    def num_free(self) -> int:
        """Offered blocks in no table, cached ones too; below 0 right after a shrink."""
        return self.num_blocks - self._num_used

    @property
    def num_tables(self) -> int:
        return len(self._tables)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def can_ever_fit(self, tokens: int) -> bool:
        return self.blocks_for(tokens) <= self.num_blocks

    # --- tables ---

    def match(self, token_ids: Sequence[int]) -> int:
        """Cached prefix in tokens: whole blocks, and never the last token, which must run."""
        return len(self._find(token_ids)[0]) * self.block_size

    def _find(self, token_ids: Sequence[int]) -> tuple[list[int], list[bytes]]:
        blocks = (len(token_ids) - 1) // self.block_size
        return self._index.find(token_ids, blocks) if self.prefix_cache and blocks else ([], [])

    def can_open(self, token_ids: Sequence[int], tokens: int, spare: int = 0) -> bool:
        """Whether a table that begins with token_ids can be opened and grown to `tokens` tokens.

        With `spare` blocks left free. Blocks of the cached prefix that others hold cost nothing.
        """
        room = self.num_free - spare
        need = self.blocks_for(tokens)
        shareable = (len(token_ids) - 1) // self.block_size if self.prefix_cache else 0
        if need <= room or need - shareable > room:
            return need <= room  # clear without a look at the tokens
        return need - sum(bool(self._holders[b]) for b in self._find(token_ids)[0]) <= room

    def open(self, owner: int, token_ids: Sequence[int], expected_tokens: int = 0) -> int:
        """A table that begins with the cached prefix of token_ids; the cached tokens.

        expected_tokens: how far it may grow, so that it can lie in one run. A hint, no promise.
        """
        if owner in self._tables:
            raise IntegrityError(f"sequence {owner} already has a table")
        blocks, digests = self._find(token_ids)
        if sum(not self._holders[b] for b in blocks) > max(0, self.num_free):
            raise IntegrityError(f"sequence {owner} was opened without room for its prefix")
        for block in blocks:
            self._hold(block, owner)
        self._tables[owner], self._digests[owner] = blocks, digests
        after = blocks[-1] if blocks else None
        self._placement.keep_run(owner, after, self.blocks_for(expected_tokens) - len(blocks))
        return len(blocks) * self.block_size

    def can_grow(self, owner: int, tokens: int) -> bool:
        """Whether grow would succeed."""
        return self.blocks_for(tokens) - len(self._tables[owner]) <= max(0, self.num_free)

    def grow(self, owner: int, tokens: int) -> bool:
        """The table holds `tokens` tokens; False and nothing changed where blocks do not suffice.

        Blocks that hold nothing go first, then the least recently used cached ones.
        """
        table = self._tables[owner]
        count = self.blocks_for(tokens) - len(table)
        if count <= 0:
            return True
        if count > self.num_free:
            return False
        for _ in range(count - (self.num_free - len(self._cached))):
            self._evict()
        fresh = self._placement.take(owner, table[-1] if table else None, count)
        for position, block in enumerate(fresh, len(table)):
            self._positions[block] = position
            self._hold(block, owner)
        table += fresh
        return True

    def table(self, owner: int) -> list[int]:
        """The blocks of a table in order of positions; a copy."""
        return list(self._tables[owner])

    def commit(self, owner: int, token_ids: Sequence[int], computed: int) -> None:
        """The first `computed` tokens of the table are in the cache: its full blocks are known."""
        if not self.prefix_cache:
            return
        digests, full = self._digests[owner], computed // self.block_size
        if full > len(digests):
            fresh = self._index.extend(digests, token_ids, full)
            for block, digest in zip(self._tables[owner][len(digests) : full], fresh, strict=True):
                self._index.add(block, digest)
            digests += fresh

    def release(self, owner: int) -> None:
        """Give a table back. Known blocks stay cached, the end of the chain evicted first."""
        table = self._tables.pop(owner)
        del self._digests[owner]
        self._placement.forget_run(owner)
        for block in reversed(table):
            self._let_go(block, owner)
        self._trim()

    def _hold(self, block: int, owner: int) -> None:
        holders = self._holders[block]
        if not holders:
            self._num_used += 1
            self._cached.pop(block, None)
        holders.append(owner)
        self._changed[block] = None

    def _let_go(self, block: int, owner: int) -> None:
        holders = self._holders[block]
        holders.remove(owner)
        self._changed[block] = None
        if holders:
            return
        self._num_used -= 1
        if block in self._index:
            self._cached[block] = None
        else:
            self._placement.give_back(block)

    # --- the cache ---

    def _evict(self) -> None:
        block, _ = self._cached.popitem(last=False)
        self._index.drop(block)
        self._placement.give_back(block)
        self._changed[block] = None
        self.evictions += 1

    def _trim(self) -> None:
        while self._cached and len(self._cached) > self.num_free:
            self._evict()

    def resize(self, num_blocks: int) -> None:
        """Offer fewer or more. Cached blocks give way at once, used ones when they are released.

        Raises UserError below 1 and above the capacity.
        """
        if not 1 <= num_blocks <= self.capacity:
            raise UserError(f"{num_blocks} KV blocks: use 1 to {self.capacity}")
        self.num_blocks = num_blocks
        self._trim()

    def set_prefix_cache(self, on: bool) -> None:
        """Off: all contents are forgotten, and cached blocks hold nothing any more."""
        self.prefix_cache = on
        if on:
            return
        self._index.clear()
        for block in self._cached:
            self._placement.give_back(block)
            self._changed[block] = None
        self._cached.clear()
        self._digests = {owner: [] for owner in self._tables}

    # --- reports ---

    def drain(self) -> list[BlockChange]:
        """Blocks that changed since the last drain, as they are now; evictions count from 0."""
        changes = [self._change(block) for block in self._changed]
        self._changed.clear()
        self.evictions = 0
        return changes

    def _change(self, block: int) -> BlockChange:
        holders, position = self._holders[block], self._positions[block]
        if holders:
            return BlockChange(block, "used", holders[0], len(holders), position)
        if block in self._cached:
            return BlockChange(block, "cached", None, 0, position)
        return BlockChange(block, "free", None, 0, None)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless tables, holders, contents and counts agree."""
        holders: list[list[int]] = [[] for _ in range(self.capacity)]
        for owner, table in self._tables.items():
            for position, block in enumerate(table):
                holders[block].append(owner)
                if self._positions[block] != position:
                    raise IntegrityError(f"block {block} is at {position} in {owner}'s table")
        for block, expected in enumerate(holders):
            self._check_block(block, expected)
        used = sum(bool(h) for h in holders)
        if used != self._num_used:
            raise IntegrityError(f"{used} blocks are used, {self._num_used} counted")
        if self._cached and len(self._cached) > self.num_free:
            raise IntegrityError(f"{len(self._cached)} blocks cached, room for {self.num_free}")
        self._check_contents()

    def _check_block(self, block: int, holders: list[int]) -> None:
        if len(set(holders)) != len(holders):
            raise IntegrityError(f"block {block} is twice in one table")
        if sorted(self._holders[block]) != sorted(holders):
            raise IntegrityError(f"block {block} is in the tables of {holders}, not as counted")
        if (block in self._cached) != (block in self._index and not holders):
            raise IntegrityError(f"block {block} is cached and should not be, or the reverse")
        if self._placement.is_held(block) != (bool(holders) or block in self._cached):
            raise IntegrityError(f"block {block} is free and should not be, or the reverse")

    def _check_contents(self) -> None:
        if not self._index.consistent() or (len(self._index) and not self.prefix_cache):
            raise IntegrityError("the index of contents does not agree with itself")
        if self._digests.keys() != self._tables.keys():
            raise IntegrityError("tables and their digests do not belong together")
        for owner, digests in self._digests.items():
            if len(digests) > len(self._tables[owner]):
                raise IntegrityError(f"sequence {owner} has more digests than blocks")
