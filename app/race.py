"""A race: one seeded workload through several schedulers of the running engine, in turn.

What ran before is drained first and comes back afterwards. Events of kind `race` mark what belongs
to it, so that the recording alone shows it again (`telemetry.queries.race`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from app import state
from telemetry.clock import NS_PER_S, now_ns
from telemetry.errors import StoreError
from telemetry.queries.live import busy
from telemetry.queries.race import reached

if TYPE_CHECKING:
    from engine.messages import Load, Status

MOST_REQUESTS, MOST_SLOTS = 400, 256
_LOOK_S = 0.1
_SETTLE_NS = 3 * NS_PER_S


class RaceError(ValueError):
    """Why a race cannot begin, or ended early: one line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which workload, how much of it, and the schedulers that run it one after the other."""

    workload: str = "skew"
    requests: int = 40
    slots: int = 10
    seed: int = 0
    modes: tuple[str, ...] = ("static", "continuous")

    def check(self) -> None:
        """Raises RaceError for what is no race."""
        if len(set(self.modes)) < 2 or len(set(self.modes)) != len(self.modes):
            raise RaceError("a race needs two or more schedulers: choose another one")
        if not 2 <= self.requests <= MOST_REQUESTS:
            raise RaceError(f"requests is {self.requests}: use 2 to {MOST_REQUESTS}")
        if not 1 <= self.slots <= MOST_SLOTS:
            raise RaceError(f"slots is {self.slots}: use 1 to {MOST_SLOTS}")


class Races:
    """One race at a time; methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: _Race | None = None
        self._until_ns = 0

    def start(self, session: state.Session, plan: Plan) -> None:
        """Returns at once. Raises RaceError, with nothing changed."""
        plan.check()
        with self._lock:
            if self.running:
                raise RaceError("a race is running: wait until it is over, or cancel it")
            status = session.status
            if session.phase != "ready" or status is None or session.run_id is None:
                raise RaceError("the engine is starting: race when it runs")
            if status.paused:
                raise RaceError("the engine is paused: resume it, then race")
            self._current = _Race(session, plan, status, session.run_id)
            self._current.start()

    @property
    def running(self) -> bool:
        return self._current is not None and self._current.is_alive()

    @property
    def holds(self) -> bool:
        """Whether the engine's settings are the race's: until every tab has seen them go back.

        A tab's next rerun may still carry what it showed a moment ago, which is nobody's choice.
        """
        if self.running:
            self._until_ns = now_ns() + _SETTLE_NS
        return now_ns() < self._until_ns

    def cancel(self) -> None:
        """End the race that runs; the engine goes back to what it did before."""
        if self._current is not None:
            self._current.cancelled.set()

    def join(self, timeout_s: float | None = None) -> None:
        """Until the race that runs is over."""
        if self._current is not None:
            self._current.join(timeout_s)


def races() -> Races:
    """Those of this server."""
    made: Races = state.once("races", Races)
    return made


class _Race(threading.Thread):
    """Waits for the engine between commands; ends early where somebody else commands it."""

    def __init__(self, session: state.Session, plan: Plan, before: Status, run_id: str) -> None:
        super().__init__(name="race", daemon=True)
        self._session, self._plan, self._before, self._run_id = session, plan, before, run_id
        self._name = uuid.uuid4().hex[:12]
        self._chosen: dict[str, Any] = {}  # what this race set, by field of Status
        self._theirs: set[str] = set()  # what somebody else has changed meanwhile
        self._mine: Load | None = None
        self._rejected = _newest(session)
        self.cancelled = threading.Event()

    def run(self) -> None:
        ending, why = "done", None
        try:
            self._begin()
            for leg, mode in enumerate(self._plan.modes):
                self._leg(leg, mode)
        except RaceError as error:
            ending, why = "cancelled", str(error)
        except StoreError:
            return  # the server is ending
        if self._same_engine():
            self._mark(ending, reason=why)
            self._restore()

    def _begin(self) -> None:
        """No load, and nothing left of it: both sides start with an empty engine."""
        chunk_tokens = self._before.chunk_tokens
        self._mark("begin", **asdict(self._plan), chunk_tokens=chunk_tokens)
        self._session.stop_load()
        self._until(lambda status: status.load is None)
        self._drained("begin", None)

    def _leg(self, leg: int, mode: str) -> None:
        """Prefix cache off: the second side would find what the first has computed."""
        plan = self._plan
        self._chosen = {"scheduler": mode, "max_batch": plan.slots, "prefix_cache": False}
        self._session.configure(**self._chosen)
        self._until(self._as_chosen)
        self._mark("start", leg=leg, mode=mode)
        self._run_load()
        self._mark("end", leg=leg, mode=mode)
        self._drained("end", leg)

    def _run_load(self) -> None:
        """The load, until all its requests have ended."""
        plan, before = self._plan, self._session.load_done
        self._session.load(plan.workload, requests=plan.requests, seed=plan.seed)
        self._mine = None

        def over(status: Status) -> bool:
            if self._is_mine(status.load):
                self._mine = status.load
            # In this order: the engine tells that it is done before it tells that it has no load.
            if self._session.load_done is not before:
                return True
            self._undisturbed(status)
            return False

        self._until(over)

    def _undisturbed(self, status: Status) -> None:
        """Raises RaceError where somebody else commands the engine: what they set stays."""
        self._theirs = {n for n, value in self._chosen.items() if getattr(status, n) != value}
        if self._mine is not None and not self._is_mine(status.load):
            self._theirs.add("load")
        if self._theirs:
            names = ", ".join(sorted(self._theirs)).replace("_", " ")
            raise RaceError(f"somebody changed {names}")

    def _is_mine(self, load: Load | None) -> bool:
        plan = self._plan
        wanted = (plan.workload, plan.requests, plan.seed)
        return load is not None and (load.workload, load.requests, load.seed) == wanted

    def _as_chosen(self, status: Status) -> bool:
        return all(getattr(status, name) == value for name, value in self._chosen.items())

    def _drained(self, part: str, leg: int | None) -> None:
        """Until nothing waits or runs; the mark in the store says that it knows all of it."""
        with self._session.store.reader() as reader:
            self._until(lambda _: reached(reader, self._run_id, self._name, part, leg))
            self._until(lambda _: not busy(reader, self._run_id))

    def _until(self, met: Callable[[Status], bool]) -> None:
        """Raises RaceError where it can no longer be met."""
        while True:
            if self.cancelled.is_set():
                raise RaceError("cancelled")
            status = self._session.status
            if not self._same_engine() or status is None:
                raise RaceError("the engine ended")
            if met(status):
                return
            refusal = _newest(self._session)
            if refusal is not self._rejected and refusal is not None:
                self._rejected = refusal
                if refusal.command in ("Load", "Configure"):
                    raise RaceError(refusal.message)
            self._session.wait(_LOOK_S)

    def _same_engine(self) -> bool:
        return self._session.phase == "ready" and self._session.run_id == self._run_id

    def _mark(self, part: str, **more: Any) -> None:
        known = {name: value for name, value in more.items() if value is not None}
        self._session.mark("race", {"race": self._name, "part": part, **known})

    def _restore(self) -> None:
        """As it was before, but for what somebody else has changed meanwhile."""
        before = self._before
        names = self._chosen.keys() - self._theirs
        self._session.configure(**{name: getattr(before, name) for name in names})
        if "load" in self._theirs:
            return
        if before.load is None:
            self._session.stop_load()
        else:
            load = before.load
            self._session.load(load.workload, load.concurrency, load.rate, load.requests, load.seed)


def _newest(session: state.Session) -> Any:
    return session.rejections[-1] if session.rejections else None
