"""Where in the cache the next block of a table lies. Pure bookkeeping, no torch.

Attention reads a table that is one contiguous run in place, and copies any other. So a table is
given, when it is opened, a run that it can grow into. Nothing is promised by that: other tables
start elsewhere as long as there is an elsewhere, and then take blocks of the run.
"""

from __future__ import annotations

_FREE, _KEPT, _HELD = 0, 1, 2  # kept: free, and in the run of some table


class Placement:
    """The blocks 0 … capacity - 1 that hold nothing, and the runs that tables grow into."""

    def __init__(self, capacity: int) -> None:
        self._state = bytearray(capacity)
        self._runs: dict[int, range] = {}

    def keep_run(self, owner: int, after: int | None, count: int) -> None:
        """A run of `count` free blocks for a table, next to block `after` where that is free."""
        if count < 1:
            return
        blank, first = bytes(count), -1
        if after is not None and self._state.startswith(blank, after + 1):
            first = after + 1
        else:
            first = self._state.find(blank)
        if first >= 0:
            self._state[first : first + count] = bytes([_KEPT]) * count
            self._runs[owner] = range(first, first + count)

    def forget_run(self, owner: int) -> None:
        """The table has been closed."""
        run = self._runs.pop(owner, None)
        if run is not None:
            part = self._state[run.start : run.stop]
            self._state[run.start : run.stop] = part.replace(bytes([_KEPT]), bytes([_FREE]))

    def take(self, owner: int, after: int | None, count: int) -> list[int]:
        """`count` free blocks for a table that ends with block `after`; as many must be free."""
        taken: list[int] = []
        for left in range(count, 0, -1):
            after = self._following(owner, after)
            if after is None:
                after = self._start(owner, left)
            self._state[after] = _HELD
            taken.append(after)
        return taken

    def _following(self, owner: int, after: int | None) -> int | None:
        """The block after `after` if it is free and in no other table's run."""
        if after is None or after + 1 >= len(self._state):
            return None
        state = self._state[after + 1]
        mine = state == _KEPT and after + 1 in self._runs.get(owner, ())
        return after + 1 if state == _FREE or mine else None

    def _start(self, owner: int, count: int) -> int:
        """A block for a part that does not follow on what the table has."""
        run = self._runs.get(owner)
        if run is not None and self._state[run.start] == _KEPT:
            return run.start
        for wanted in (bytes(count), bytes([_FREE]), bytes([_KEPT])):
            found = self._state.find(wanted)
            if found >= 0:
                return found
        raise ValueError("no block is free")

    def give_back(self, block: int) -> None:
        """The block holds nothing any more."""
        self._state[block] = _FREE

    def is_held(self, block: int) -> bool:
        return self._state[block] == _HELD
