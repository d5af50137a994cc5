"""When a view is made again, and whether all of it: clocks whose instants are the caller's, ns."""

from __future__ import annotations

from telemetry.clock import NS_PER_S

# On average a view is made so often at most, and takes this share of one core: where making it is
# slow, updates come less often.
LEAST_S, SHARE, MOST_S = 0.12, 0.4, 1.0
# Where no new commit comes for so long, a view is made from what there is.
LATE_S = 0.27
# Words and numbers that change more often than twice a second cannot be read, and drawing them
# would delay what shows the newest step: until then only what leads is made.
WHOLE_S = 0.45


class Turns:
    """When a view may be made again: at an average interval, with one in advance.

    The generic cell rate algorithm (ITU-T I.371, 1993).
    """

    def __init__(self) -> None:
        self._due_ns = self._taken_ns = 0
        self._interval_ns = 0

    def take(self, at_ns: int, took_s: float) -> None:
        """One was made from at_ns on, which took so much of a core."""
        interval_s = min(max(LEAST_S, took_s / SHARE), MOST_S)
        self._interval_ns = round(interval_s * NS_PER_S)
        self._taken_ns, self._due_ns = at_ns, max(self._due_ns, at_ns) + self._interval_ns

    def next_ns(self) -> int:
        """From when on the next may be made."""
        return self._due_ns - self._interval_ns

    def late_ns(self) -> int:
        """From when on it should be, whatever it shows."""
        return self._taken_ns + max(self._interval_ns, round(LATE_S * NS_PER_S))


class Whole:
    """Whether all of a view is to be made, or what leads is enough."""

    def __init__(self) -> None:
        self._made_ns: int | None = None
        self._engine = ""
        self._owed = False

    def enough(self, at_ns: int, engine: str) -> bool:
        """Whether what leads is: the rest is young, and of an engine in this state."""
        made_ns, whole_ns = self._made_ns, round(WHOLE_S * NS_PER_S)
        return made_ns is not None and at_ns - made_ns < whole_ns and engine == self._engine

    def made(self, at_ns: int, engine: str, *, lead_only: bool) -> None:
        """One was made from at_ns on."""
        self._owed = lead_only
        if not lead_only:
            self._made_ns, self._engine = at_ns, engine

    def overdue(self, at_ns: int) -> bool:
        """Whether the rest should be made although nothing has changed since what leads was."""
        waited_ns = at_ns - (self._made_ns or 0)
        return self._owed and waited_ns >= round((WHOLE_S + LATE_S) * NS_PER_S)
