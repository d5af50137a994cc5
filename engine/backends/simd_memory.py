"""Memory of the vector kernels: records of addresses, and buffers that grow with the batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LINE_BYTES = 64
Ints = NDArray[np.int64]


def aligned(size_bytes: int) -> NDArray[np.uint8]:
    """Zeros at a cache line that take no memory until they are written."""
    memory = np.zeros(size_bytes + LINE_BYTES, dtype=np.uint8)
    first = -memory.ctypes.data % LINE_BYTES
    return memory[first : first + size_bytes]


def address(array: NDArray[np.generic]) -> int:
    """Where an array lies; whoever uses it keeps the array."""
    start: int = array.__array_interface__["data"][0]
    return start


class Buffer:
    """A two-dimensional buffer of rows at cache lines; asking for more rows replaces it."""

    def __init__(self, row_bytes: int) -> None:
        self.stride = -(-row_bytes // LINE_BYTES) * LINE_BYTES
        self._rows = 0
        self._memory = aligned(0)

    def rows(self, count: int) -> int:
        """Address of at least `count` rows; what they held is lost when there were fewer."""
        if count > self._rows:
            self._rows = max(count, 2 * self._rows)
            self._memory = aligned(self._rows * self.stride)
        return address(self._memory)

    def view(self, count: int, width: int) -> NDArray[np.float32]:
        """The first rows as float32 [count, width], without a copy."""
        rows = self._memory.view(np.float32).reshape(self._rows, self.stride // 4)
        return rows[:count, :width]
