"""The generated load of a running engine: its clock, its requests, its end."""

from __future__ import annotations

from engine.clock import REAL_CLOCK, Clock
from engine.messages import Load
from engine.request import Request
from engine.workloads import load_workload
from engine.workloads.generator import LoadGenerator
from engine.workloads.prompts import PromptSource
from telemetry.clock import NS_PER_S


class LoadControl:
    """One load at a time. Its clock stands still while the engine is paused."""

    def __init__(
        self,
        prompts: PromptSource,
        max_context: int,
        clock: Clock = REAL_CLOCK,
        *,
        as_recorded: bool = False,
    ) -> None:
        """as_recorded: built-in traces are not scaled down to fit a small machine."""
        self._prompts, self._max_context, self._clock = prompts, max_context, clock
        self._as_recorded = as_recorded
        self.load: Load | None = None
        self._generator: LoadGenerator | None = None
        self._start_ns = 0
        self._paused_at_ns: int | None = None
        self._mine: set[int] = set()  # requests of this load that have not ended
        self._others: set[int] = set()  # requests of earlier loads that still run
        self._submitted = 0

    def start(self, load: Load) -> list[int]:
        """Replace the load; unfinished requests of the last. UserError before anything changes."""
        workload = load_workload(
            load.workload, seed=load.seed, requests=load.requests, as_recorded=self._as_recorded
        )
        self._generator = LoadGenerator(
            workload,
            self._prompts,
            concurrency=load.concurrency,
            rate=load.rate,
            requests=load.requests,
            seed=load.seed,
            max_context=self._max_context,
        )
        unfinished = self._leave_behind()
        self.load = load
        self._start_ns = self._clock.now_ns()
        self._paused_at_ns = self._start_ns if self._paused_at_ns is not None else None
        self._submitted = 0
        return unfinished

    @property
    def settings(self) -> dict[str, object]:
        """What shaped the load, for the event that marks its start."""
        return {} if self._generator is None else self._generator.settings

    def stop(self) -> list[int]:
        """No more arrivals; the requests that have not ended."""
        self.load = self._generator = None
        return self._leave_behind()

    def _leave_behind(self) -> list[int]:
        unfinished = sorted(self._mine)
        self._others |= self._mine
        self._mine = set()
        return unfinished

    def pause(self, t_ns: int) -> None:
        if self._paused_at_ns is None:
            self._paused_at_ns = t_ns

    def resume(self, t_ns: int) -> None:
        if self._paused_at_ns is not None:
            self._start_ns += t_ns - self._paused_at_ns
            self._paused_at_ns = None

    def due(self) -> list[Request]:
        """Requests that have arrived by now, each stamped with its own instant of arrival."""
        if self._generator is None or self._generator.exhausted:
            return []
        now = self._clock.now_ns()
        # A closed loop keeps its number of streams, whoever they belong to: what an earlier load
        # left running counts until it ends.
        in_flight = len(self._mine) + len(self._others)
        due = self._generator.poll((now - self._start_ns) / NS_PER_S, in_flight)
        return [self._stamped(arrival_s, request, now) for arrival_s, request in due]

    def _stamped(self, arrival_s: float | None, request: Request, now: int) -> Request:
        arrived = now if arrival_s is None else self._start_ns + round(arrival_s * NS_PER_S)
        return Request(request.prompt_token_ids, request.sampling, min(arrived, now), request.label)

    def submitted(self, request_id: int) -> None:
        self._mine.add(request_id)
        self._submitted += 1

    def ended(self, request_id: int) -> None:
        self._mine.discard(request_id)
        self._others.discard(request_id)

    @property
    def done(self) -> int | None:
        """How many requests ran, once a bounded load has no more and all have ended."""
        if self._generator is None or not self._generator.exhausted or self._mine:
            return None
        return self._submitted

    def next_arrival_ns(self) -> int | None:
        """When to look again although nothing else happens."""
        if self._generator is None or self._generator.exhausted:
            return None
        arrival_s = self._generator.next_arrival_s()
        if arrival_s is None:
            return None
        # Never before it, however it rounds: a clock that jumps there would find nothing due.
        return self._start_ns + int(arrival_s * NS_PER_S) + 1
