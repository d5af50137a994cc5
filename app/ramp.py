"""A closed loop that takes on more streams by itself, level after level."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import UserError
from telemetry.clock import NS_PER_S, now_ns

_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Ramp:
    """Streams of a workload: levels[0] at once, the next level after hold_s, the last one stays."""

    workload: str
    levels: tuple[int, ...]
    hold_s: float = 3.0

    def __post_init__(self) -> None:
        """Raises UserError for what is no ramp."""
        if not self.levels or min(self.levels) < 1:
            raise UserError(f"a ramp's levels are {self.levels}: use one or more, of 1 stream up")
        if self.hold_s <= 0:
            raise UserError(f"a ramp holds a level for {self.hold_s:g} s: use more than 0")


class Ramps:
    """The one ramp of a session, until somebody commands the load: its methods end it, or wait.

    send(workload, streams) asks for a level; is_paused stops the ramp's clock while it is true.
    """

    def __init__(self, send: Callable[[str, int], None], is_paused: Callable[[], bool]) -> None:
        self._send, self._is_paused = send, is_paused
        self._lock = threading.Lock()
        self._ended: threading.Event | None = None

    def start(self, ramp: Ramp) -> None:
        """Ask for the first level, and for the others in time from a thread of its own."""
        with self._lock:
            self._end()
            ended = self._ended = threading.Event()
            self._send(ramp.workload, ramp.levels[0])
        if len(ramp.levels) > 1:
            args = (ramp, ended)
            threading.Thread(target=self._climb, args=args, name="ramp", daemon=True).start()

    def end(self) -> None:
        """No further level: once this has returned, nothing more is asked for."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._ended is not None:
            self._ended.set()
        self._ended = None

    def _climb(self, ramp: Ramp, ended: threading.Event) -> None:
        for streams in ramp.levels[1:]:
            self._hold(ramp.hold_s, ended)
            with self._lock:
                if ended.is_set():
                    return
                self._send(ramp.workload, streams)

    def _hold(self, hold_s: float, ended: threading.Event) -> None:
        """So long on a clock that stands still while the engine does; less where it is ended."""
        left_ns, before = hold_s * NS_PER_S, now_ns()
        while left_ns > 0 and not ended.wait(min(_LOOK_S, left_ns / NS_PER_S)):
            now = now_ns()
            left_ns -= 0 if self._is_paused() else now - before
            before = now
