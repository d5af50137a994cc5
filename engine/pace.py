"""Whether a modelled clock keeps up with real time."""

from __future__ import annotations

from collections import deque

from engine.clock import Clock
from engine.messages import Pace
from telemetry.clock import NS_PER_S, now_ns

EVERY_NS = NS_PER_S
_SPAN_NS = 10 * NS_PER_S


class PaceMeter:
    """Compares how far both clocks have come over the last ten seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: deque[tuple[int, int]] = deque()  # real, modelled
        self._next_ns = 0

    def look(self) -> Pace | None:
        """What to tell, once a second; called from the engine's thread after each turn."""
        real_ns = now_ns()
        if real_ns < self._next_ns:
            return None
        self._next_ns = real_ns + EVERY_NS
        self._seen.append((real_ns, self._clock.now_ns()))
        while real_ns - self._seen[0][0] > _SPAN_NS:
            self._seen.popleft()
        return Pace(self._clock.lag_s, self._behind())

    def _behind(self) -> float:
        (real_a, modelled_a), (real_b, modelled_b) = self._seen[0], self._seen[-1]
        if real_b == real_a:
            return 0.0
        return max(0.0, 1 - (modelled_b - modelled_a) / (real_b - real_a))
