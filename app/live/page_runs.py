"""Pages that are being drawn: until they stand no view is made again, which would delay them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from app import state
from telemetry.clock import NS_PER_S, now_ns

# The browser takes about so long to draw what a page's script has sent, and waits no longer.
DRAWING_S, MOST_S = 0.2, 0.6


class PageRuns:
    """Methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._began_ns = self._until_ns = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around the run of a whole page's script."""
        with self._lock:
            self._running += 1
            self._began_ns = now_ns()
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._until_ns = now_ns() + round(DRAWING_S * NS_PER_S)

    def busy(self, at_ns: int) -> bool:
        """Whether a page is being drawn; one that takes long does not hold the others up for it."""
        drawn = not self._running and at_ns >= self._until_ns
        return not drawn and at_ns - self._began_ns < MOST_S * NS_PER_S


def page_runs() -> PageRuns:
    """Those of this server."""
    made: PageRuns = state.once("page_runs", PageRuns)
    return made
