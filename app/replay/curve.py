"""Curves of token budgets that pages asked for: one for each run and stretch, in all tabs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app import state
from app.panels.view import Replays
from app.replay.jobs import Jobs, Work

if TYPE_CHECKING:
    from app.replay.worker import Job

Key = tuple[str, str, str]
"""run_id, and the first and last step of a held stretch ("" for the run's newest requests)."""
_KEPT = 8


@dataclass(slots=True)
class Curve:
    """Work on its way, and what its answer is held against; an error where none can be asked."""

    work: Work
    facts: Mapping[str, Any] = field(default_factory=dict)

    def told(self) -> Replays:
        """As a panel takes it."""
        work = self.work
        result = None if work.result is None else {**self.facts, **work.result}
        return Replays(work.done, work.total, result, work.error)


class Curves:
    """Kept for the server's life, the newest few."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs, self._lock = jobs, threading.Lock()
        self._found: dict[Key, Curve] = {}

    def of(self, key: Key) -> Replays | None:
        """How far the curve is; None where nobody has asked for it."""
        found = self._found.get(key)
        return found.told() if found else None

    def ask(
        self, key: Key, make: Callable[[], tuple[Job, Mapping[str, Any]]], *, again: bool = False
    ) -> None:
        """Begin unless it was asked for before. make raises ValueError for what cannot be."""
        with self._lock:
            if key in self._found and not again:
                return
            try:
                job, facts = make()
            except ValueError as error:
                made = Curve(Work(error=str(error)))
            else:
                made = Curve(self._jobs.start(job), facts)
            self._found.pop(key, None)
            self._found[key] = made
            while len(self._found) > _KEPT:
                self._found.pop(next(iter(self._found)))


def curves() -> Curves:
    """Those of this server."""
    jobs: Jobs = state.once("replays", Jobs)
    made: Curves = state.once("curves", lambda: Curves(jobs))
    return made


def key_of(run_id: str, params: Mapping[str, str]) -> Key:
    """Of what a page shows: a held stretch, or the run."""
    held = "first" in params and "last" in params
    return (run_id, params["first"], params["last"]) if held else (run_id, "", "")
