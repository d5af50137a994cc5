"""The block manager against a brute-force model, with integrity checked after every operation."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.block_manager import BlockManager, IntegrityError
from engine.request import RequestError

BLOCKS, SIZE = 23, 4


class BlockManagerMachine(RuleBasedStateMachine):
    """The model keeps, per owner, its table and how many tokens it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(BLOCKS, SIZE)
        self.tables: dict[int, list[int]] = {}
        self.held: dict[int, int] = {}
        self.next_owner = 0

    def free(self) -> int:
        return BLOCKS - sum(len(t) for t in self.tables.values())

    @rule(tokens=st.integers(1, BLOCKS * SIZE + 5))
    def reserve(self, tokens: int) -> None:
        fits = -(-tokens // SIZE) <= self.free()
        assert self.manager.can_reserve(tokens) == fits
        if not fits:
            with pytest.raises(IntegrityError):
                self.manager.reserve(self.next_owner, tokens)
            return
        table = self.manager.reserve(self.next_owner, tokens)
        assert len(table) == -(-tokens // SIZE)
        assert not set(table) & {b for t in self.tables.values() for b in t}
        self.tables[self.next_owner], self.held[self.next_owner] = table, 0
        self.next_owner += 1

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.tables)))
        room = len(self.tables[owner]) * SIZE
        tokens = data.draw(st.integers(0, room))
        before = -(-self.held[owner] // SIZE)
        self.held[owner] = max(self.held[owner], tokens)
        after = -(-self.held[owner] // SIZE)
        assert self.manager.use(owner, tokens) == self.tables[owner][before:after]
        with pytest.raises(IntegrityError):
            self.manager.use(owner, room + 1)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.tables)))
        table, held = self.tables.pop(owner), self.held.pop(owner)
        assert self.manager.release(owner) == table[: -(-held // SIZE)]
        with pytest.raises(KeyError):
            self.manager.release(owner)

    @invariant()
    def books_balance(self) -> None:
        self.manager.check_integrity()
        assert self.manager.num_free == self.free()
        assert self.manager.num_used == sum(-(-h // SIZE) for h in self.held.values())


TestBlockManager = BlockManagerMachine.TestCase
TestBlockManager.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_reservations_are_one_run_where_there_is_one() -> None:
    manager = BlockManager(8, 4)
    assert manager.reserve(0, 8) == [0, 1]
    assert manager.reserve(1, 8) == [2, 3]
    manager.release(0)
    assert manager.reserve(2, 12) == [4, 5, 6]
    assert manager.reserve(3, 12) == [0, 1, 7], "no run of three is left: pieces"


def test_a_double_owner_is_found() -> None:
    manager = BlockManager(4, 4)
    manager.reserve(0, 4)
    manager.reserve(1, 4)
    manager._tables[1] = manager._tables[0]
    with pytest.raises(IntegrityError, match="owned twice"):
        manager.check_integrity()


def test_a_leak_is_found() -> None:
    manager = BlockManager(4, 4)
    manager.reserve(0, 4)
    del manager._tables[0]
    with pytest.raises(IntegrityError):
        manager.check_integrity()


def test_a_cache_without_blocks_is_refused() -> None:
    with pytest.raises(RequestError, match="use 1 or more"):
        BlockManager(0, 16)
