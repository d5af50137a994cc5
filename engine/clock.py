"""The clock of an engine: the machine's own, or one that a cost model moves.

All that happens in one engine is stamped by one clock. A modelled one stands still while Python
runs and moves by what a step would take on the modelled device; paced, it is held to real time.
"""

from __future__ import annotations

from telemetry.clock import NS_PER_S, now_ns, seconds, sleep_s

# Below this a sleep costs more than it is worth; the next one makes up for it.
_LEAST_SLEEP_NS = 500_000
# What a paced clock tries to make up for after it was held up. Beyond it the rest is kept as lag:
# an engine that was stopped for minutes must not rush through them afterwards.
_CATCH_UP_NS = NS_PER_S // 2


class Clock:
    """CLOCK_MONOTONIC, which moves by itself."""

    name = "real"
    paced = False  # whether it must be held to real time

    def now_ns(self) -> int:
        """Nanoseconds on the time axis of all records of this engine."""
        return now_ns()

    def until_s(self, t_ns: int) -> float:
        """How long to really wait until the clock shows t_ns, seconds; 0 or less: it does."""
        return seconds(t_ns - self.now_ns())

    def idled(self, until_ns: int | None) -> None:
        """Nothing ran and nothing was due before until_ns (None: for as long as it took)."""

    def at(self, real_ns: int) -> int:
        """What this clock showed at an instant of CLOCK_MONOTONIC that has passed."""
        return real_ns

    @property
    def lag_s(self) -> float:
        """How far behind real time the clock is, seconds."""
        return 0.0


class ModelledClock(Clock):
    """Moves by `advance` and `jump` only.

    paced: `advance` sleeps until real time has come as far, and idle time passes as it really
    does. Where Python takes longer than the modelled device, the clock falls behind by `lag_s`.
    Not paced: nobody waits, and idle time is jumped over.
    """

    name = "modelled"

    def __init__(self, start_ns: int, *, paced: bool) -> None:
        self.paced = paced
        self._now_ns = start_ns
        self._behind_ns = now_ns() - start_ns  # of what is not made up for: real minus modelled

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, duration_s: float) -> None:
        """Move on by what the modelled device takes; rounded up, so that no floor is beaten."""
        self._now_ns += int(duration_s * NS_PER_S) + 1
        if self.paced:
            self._hold()

    def _hold(self) -> None:
        """Sleep while the clock is ahead of its pace; keep as lag what is too much to make up."""
        ahead_ns = self._now_ns - (now_ns() - self._behind_ns)
        if ahead_ns >= _LEAST_SLEEP_NS:
            sleep_s(seconds(ahead_ns))
        elif ahead_ns < -_CATCH_UP_NS:
            self._behind_ns -= ahead_ns + _CATCH_UP_NS

    def jump(self, t_ns: int) -> None:
        """Go on to a later instant in which nothing runs; never back."""
        self._now_ns = max(self._now_ns, t_ns)

    def until_s(self, t_ns: int) -> float:
        return seconds(t_ns - now_ns()) if self.paced else 0.0

    def idled(self, until_ns: int | None) -> None:
        if not self.paced:
            if until_ns is not None:
                self.jump(until_ns)
            return
        # Lag is made up for in idle time, but not beyond what is due: that would look like a queue.
        real_ns = now_ns()
        self.jump(real_ns if until_ns is None else min(real_ns, until_ns))
        self._behind_ns = max(0, min(self._behind_ns, real_ns - self._now_ns))

    def at(self, real_ns: int) -> int:
        if not self.paced:
            return self._now_ns
        return min(self._now_ns, real_ns - round(self.lag_s * NS_PER_S))

    @property
    def lag_s(self) -> float:
        return max(0.0, seconds(now_ns() - self._now_ns)) if self.paced else 0.0


REAL_CLOCK = Clock()
