"""When recorded requests come again: by the clock, or as places in a closed loop become free."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from engine.replay.recording import Arrival

Due = tuple[int, Arrival, int]
"""Number of the request in the recording, the request, and when it arrives (ns)."""


class Arrivals:
    """Requests are given out once each; those of a closed loop in their recorded order."""

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        numbered = list(enumerate(arrivals))
        self._timed = deque(sorted(_of(numbered, closed=False), key=lambda n: n[1].due_ns))
        self._closed = deque(_of(numbered, closed=True))
        self._in_flight: set[int] = set()

    def due(self, now_ns: int) -> Iterator[Due]:
        """Those that have arrived by now and were not given out before, in order of arrival."""
        while self._timed and self._timed[0][1].due_ns <= now_ns:
            number, arrival = self._timed.popleft()
            yield number, arrival, arrival.due_ns
        while self._closed and self._has_place(self._closed[0][1], now_ns):
            number, arrival = self._closed.popleft()
            self._in_flight.add(number)
            yield number, arrival, now_ns

    def _has_place(self, arrival: Arrival, now_ns: int) -> bool:
        streams = arrival.streams or 0
        return arrival.due_ns <= now_ns and len(self._in_flight) < streams

    def ended(self, number: int) -> None:
        """The request has finished: its place in the loop is free."""
        self._in_flight.discard(number)

    def next_ns(self, now_ns: int) -> int | None:
        """When to look again although nothing ends; None: nothing more comes by the clock."""
        times = [self._timed[0][1].due_ns] if self._timed else []
        if self._closed and self._closed[0][1].due_ns > now_ns:
            times.append(self._closed[0][1].due_ns)
        return min(times, default=None)


def _of(numbered: list[tuple[int, Arrival]], *, closed: bool) -> list[tuple[int, Arrival]]:
    return [(n, a) for n, a in numbered if (a.streams is not None) == closed]
