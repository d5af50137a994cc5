"""Memory for what every step streams: on huge pages, where the kernel of the system has them.

With pages of 4 KiB a core that streams weights waits for address translations a third of the time.
malloc can be told to use huge pages, but gives them only to allocations of several megabytes.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
from numpy.typing import NDArray

LINE_BYTES = 64
_HUGE_BYTES = 2 << 20
Bytes = NDArray[np.uint8]


def huge(size_bytes: int) -> Bytes:
    """Zeros, at a huge page's border, that take no memory until they are written."""
    memory = mmap.mmap(-1, max(1, size_bytes) + _HUGE_BYTES)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without huge pages is slower, not wrong
            memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    first = -whole.ctypes.data % _HUGE_BYTES
    return whole[first : first + size_bytes]


class Arena:
    """Many arrays behind one another, in the order in which they are asked for."""

    def __init__(self, chunk_bytes: int = 64 << 20) -> None:
        self._chunk_bytes = chunk_bytes
        self._chunk = huge(0)
        self._used = 0
        self.bytes = 0
        """Given out so far."""

    def take(self, size_bytes: int) -> Bytes:
        """Zeros at a cache line; they live as long as somebody holds them."""
        size = -(-size_bytes // LINE_BYTES) * LINE_BYTES
        if self._used + size > len(self._chunk):
            self._chunk, self._used = huge(max(size, self._chunk_bytes)), 0
        place = self._chunk[self._used : self._used + size_bytes]
        self._used += size
        self.bytes += size_bytes
        return place
