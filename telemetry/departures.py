"""When envelopes leave: rarely, and yet never with a step that ended long ago."""

from __future__ import annotations

from collections import deque

from telemetry.clock import NS_PER_S

# One that is due leaves as a step ends, so that it never waits beside a finished one; where no step
# ends for so many intervals, with what there is.
PATIENCE = 1.5
# A step that takes so many times as long as the shortest of the last ones, and more than so long,
# would leave the steps before it waiting for its end: they leave up to half an interval early.
LONG, LONG_S, LOOKED_AT = 2.0, 0.02, 8
EARLY = 0.5


class Departures:
    """The clock of a sender; all instants are nanoseconds of the same clock.

    interval_s: between two envelopes; while steps are long, half of it at least.
    """

    def __init__(self, interval_s: float, at_ns: int) -> None:
        self._interval_ns = round(interval_s * NS_PER_S)
        self._due_ns = at_ns + self._interval_ns
        self._last_took_ns: deque[int] = deque(maxlen=LOOKED_AT)
        self._ended_ns: int | None = None

    def step_ended(self, took_s: float, at_ns: int) -> bool:
        """A step has ended now; whether that brings `leaves_ns` forward."""
        first = self._ended_ns is None
        self._ended_ns = at_ns
        self._last_took_ns.append(round(took_s * NS_PER_S))
        return first or at_ns >= self._due_ns

    def leaves_ns(self) -> int:
        """When the envelope leaves, where no other step ends before."""
        latest = self._due_ns + round((PATIENCE - 1) * self._interval_ns)
        if self._ended_ns is None:
            return latest
        if self._ended_ns >= self._due_ns:
            return self._ended_ns
        long_ns = max(LONG * min(self._last_took_ns), LONG_S * NS_PER_S)
        early = self._due_ns - round(EARLY * self._interval_ns)
        return min(latest, max(early, self._ended_ns + round(long_ns)))

    def left(self, at_ns: int) -> None:
        """One has left, with all steps that have ended."""
        self._due_ns = at_ns + self._interval_ns
        self._ended_ns = None
