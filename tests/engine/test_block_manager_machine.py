"""The block manager as a state machine: 10,000 random operations beside a naive model of it.

The model keeps what the manager must never mix up: which tokens every block really holds, who
holds it, and which unheld blocks are known in which order. Prompts are made of two words and a
common beginning, so that prefixes are shared all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from engine.block_manager import BlockManager

OPERATIONS = 10_000
STEPS = 100
SIZE = 2

Context = tuple[int, ...]  # all tokens up to a block's end

COMMON = (0, 1, 1, 0, 1, 0, 0, 0, 1, 1)
PROMPTS = st.builds(
    lambda common, own: [*COMMON[:common], *own],
    st.integers(0, len(COMMON)),
    st.lists(st.integers(0, 1), min_size=1, max_size=4),
)
# One rule draws among these: hypothesis leaves some rules out of a run, and without any one of
# them the others have nothing to do.
KINDS = (
    *("admit", "admit", "admit", "compute", "compute", "compute", "grow", "release", "release"),
    *("resize", "set_prefix_cache", "drain"),
)


@dataclass
class Table:
    """A sequence: what it knows, how much of it is computed, and its blocks in order."""

    tokens: list[int]
    computed: int
    blocks: list[int]
    offered: int  # of its blocks, how many were offered for sharing; once is enough

    def context(self, index: int) -> Context:
        return tuple(self.tokens[: (index + 1) * SIZE])


class BlockManagerMachine(RuleBasedStateMachine):
    """Any order of operations that a queue may ask for, and those that it must be refused."""

    operations: ClassVar[int] = 0

    @initialize(capacity=st.integers(1, 12), prefix_cache=st.sampled_from((True, True, False)))
    def begin(self, capacity: int, prefix_cache: bool) -> None:
        self.manager = BlockManager(capacity, SIZE, prefix_cache=prefix_cache)
        self.offered, self.on = capacity, prefix_cache
        self.tables: dict[int, Table] = {}
        self.contents: dict[int, Context] = {}  # what was written into a block last
        self.known: dict[Context, int] = {}  # the block that is shared for a context
        self.unheld: list[int] = []  # known blocks that nobody holds, least recently used first
        self.evictions = 0
        self.reported: dict[int, tuple[str, int | None, int, int | None]] = {}
        self.next_owner = 0

    # --- the naive model ---

    def holders(self, block: int) -> list[int]:
        return [owner for owner, table in self.tables.items() if block in table.blocks]

    def used(self) -> set[int]:
        return {block for table in self.tables.values() for block in table.blocks}

    def free(self) -> int:
        return self.offered - len(self.used())

    def prefix(self, tokens: list[int]) -> list[int]:
        """Known blocks that the tokens begin with, never the block of the last token."""
        found: list[int] = []
        for end in range(SIZE, len(tokens), SIZE):
            block = self.known.get(tuple(tokens[:end]))
            if not self.on or block is None:
                break
            found.append(block)
        return found

    def evict(self) -> None:
        block = self.unheld.pop(0)
        self.known = {c: b for c, b in self.known.items() if b != block}
        self.evictions += 1

    # --- operations ---

    @rule(kind=st.sampled_from(KINDS), data=st.data())
    def operate(self, kind: str, data: st.DataObject) -> None:
        getattr(self, kind)(data)

    def someone(self, data: st.DataObject) -> int | None:
        return data.draw(st.sampled_from(sorted(self.tables))) if self.tables else None

    def admit(self, data: st.DataObject) -> None:
        """Only where all the tokens fit; mostly they run at once."""
        tokens, spare = data.draw(PROMPTS), data.draw(st.integers(0, 2))
        shared = self.prefix(tokens)
        assert self.manager.match(tokens) == len(shared) * SIZE
        need = -(-len(tokens) // SIZE) - len([b for b in shared if self.holders(b)])
        fits = need <= self.free() - spare
        assert self.manager.can_open(tokens, len(tokens), spare) == fits
        if not fits:
            return
        owner, self.next_owner = self.next_owner, self.next_owner + 1
        assert self.manager.open(owner, tokens, data.draw(st.integers(0, 30))) == len(shared) * SIZE
        assert self.manager.table(owner) == shared
        for index, block in enumerate(shared):
            assert self.contents[block] == tuple(tokens[: (index + 1) * SIZE]), "not its tokens"
        self.unheld = [b for b in self.unheld if b not in shared]
        self.tables[owner] = Table(list(tokens), len(shared) * SIZE, list(shared), len(shared))
        if data.draw(st.integers(0, 3)):
            assert self._grow(owner, len(tokens)), "what can be opened can be grown"
            self._compute(owner, data.draw(st.integers(len(shared) * SIZE, len(tokens))))

    def grow(self, data: st.DataObject) -> None:
        """Room for all it knows and more, whether or not there is any."""
        owner = self.someone(data)
        if owner is not None:
            self._grow(owner, len(self.tables[owner].tokens) + data.draw(st.integers(0, 7)))

    def _grow(self, owner: int, tokens: int) -> bool:
        table, before = self.tables[owner], self.used()
        need = max(0, -(-tokens // SIZE) - len(table.blocks))
        fits = need == 0 or need <= self.free()
        assert self.manager.can_grow(owner, tokens) == fits or need == 0
        assert self.manager.grow(owner, tokens) == fits
        grown = self.manager.table(owner)
        assert grown[: len(table.blocks)] == table.blocks
        fresh = grown[len(table.blocks) :]
        assert len(fresh) == (need if fits else 0)
        assert not set(fresh) & before, "a block of two owners with different contents"
        empty = self.free() - len(self.unheld)
        for _ in range(len(fresh) - empty if fresh else 0):
            self.evict()
        assert not set(fresh) & set(self.unheld), "evicted before what was used longer ago"
        table.blocks = grown
        return fits

    def compute(self, data: st.DataObject) -> None:
        """A token is known, and all that fit run."""
        owner = self.someone(data)
        if owner is None:
            return
        table = self.tables[owner]
        table.tokens.append(data.draw(st.integers(0, 1)))
        if self._grow(owner, len(table.tokens)):
            self._compute(owner, len(table.tokens) - data.draw(st.integers(0, 1)))

    def _compute(self, owner: int, computed: int) -> None:
        """They are written, and full blocks may be shared from then on."""
        table = self.tables[owner]
        for position in range(table.computed, computed):
            block = table.blocks[position // SIZE]
            assert self.holders(block) == [owner], "it writes into a block of somebody else"
            self.contents[block] = tuple(table.tokens[: position + 1])
        table.computed = computed
        self.manager.commit(owner, table.tokens, computed)
        if self.on:
            for index in range(table.offered, computed // SIZE):
                self.known.setdefault(table.context(index), table.blocks[index])
            table.offered = computed // SIZE

    def release(self, data: st.DataObject) -> None:
        owner = self.someone(data)
        if owner is not None:
            self._release(owner)

    def _release(self, owner: int) -> None:
        table = self.tables.pop(owner)
        self.manager.release(owner)
        for block in reversed(table.blocks):
            if not self.holders(block) and block in self.known.values():
                self.unheld.append(block)
        self._trim()

    def _trim(self) -> None:
        while self.unheld and len(self.unheld) > self.free():
            self.evict()

    def resize(self, data: st.DataObject) -> None:
        self.offered = data.draw(st.integers(1, self.manager.capacity))
        self.manager.resize(self.offered)
        self._trim()

    def set_prefix_cache(self, data: st.DataObject) -> None:
        """Mostly on, or nothing is ever shared."""
        on = data.draw(st.integers(0, 3)) > 0
        self.manager.set_prefix_cache(on)
        self.on = on
        if not on:
            self.known.clear()
            self.unheld.clear()
            for table in self.tables.values():
                table.offered = 0

    def drain(self, data: st.DataObject | None = None) -> None:
        """What was ever reported, put together, is how things are."""
        assert self.manager.evictions == self.evictions
        for change in self.manager.drain():
            self.reported[change.block] = change[1:]
        assert self.manager.drain() == []
        self.evictions = 0
        for block in range(self.manager.capacity):
            state, holder, references, position = self.reported.get(block, ("free", None, 0, None))
            holders = self.holders(block)
            expected = "used" if holders else "cached" if block in self.unheld else "free"
            assert (state, references) == (expected, len(holders))
            assert holder in holders or (holder is None and not holders)
            assert (position is None) == (expected == "free")
            assert all(self.tables[owner].blocks[position or 0] == block for owner in holders)
            if expected == "cached":
                assert position == len(self.contents[block]) // SIZE - 1

    # --- what must hold after every operation ---

    @invariant()
    def books_balance(self) -> None:
        manager = self.manager
        manager.check_integrity()
        assert {o: manager.table(o) for o in self.tables} == {
            o: t.blocks for o, t in self.tables.items()
        }
        counts = (len(self.tables), len(self.used()), len(self.unheld), self.free())
        found = (manager.num_tables, manager.num_used, manager.num_cached, manager.num_free)
        assert found == counts
        type(self).operations += 1

    @invariant()
    def only_equal_beginnings_are_shared(self) -> None:
        """A block of two tables: at the same place, behind the same computed tokens."""
        for table in self.tables.values():
            assert len(set(table.blocks)) == len(table.blocks)
            for index, block in enumerate(table.blocks):
                if len(self.holders(block)) > 1:
                    assert all(self.tables[o].blocks[index] == block for o in self.holders(block))
                    assert table.computed >= (index + 1) * SIZE
                    assert table.context(index) == self.contents[block]

    def teardown(self) -> None:
        if not hasattr(self, "manager"):
            return
        for owner in sorted(self.tables):
            self._release(owner)
        self.manager.check_integrity()
        assert (self.manager.num_used, self.manager.num_tables) == (0, 0)
        assert self.manager.num_free == self.offered
        self.drain()


def test_ten_thousand_random_operations() -> None:
    """No leak, no double free, no block of two owners, no hit on other tokens."""
    BlockManagerMachine.operations = 0
    some = settings(max_examples=40, stateful_step_count=STEPS, deadline=None)
    while BlockManagerMachine.operations < OPERATIONS:  # a run may be shorter than STEPS
        run_state_machine_as_test(BlockManagerMachine, settings=some)
