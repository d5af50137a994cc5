"""Which load sent a recorded request, and what that says about it."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from engine.workloads import WORKLOADS, Workload, load_workload
from engine.workloads.generator import clip
from engine.workloads.workload import Piece

# A request that arrived as its load began may be stamped a little before the event is.
_SLACK_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """Where a request came from. streams: of the closed loop, None where it came by the clock."""

    began_ns: int = 0
    streams: int | None = None
    pieces: tuple[Piece, ...] = ()


@dataclass(slots=True)
class _Load:
    """One load event; its requests came in order of their numbers."""

    began_ns: int
    name: str
    streams: int | None
    max_context: int
    workload: Workload | None
    sent: int = 0
    astray: bool = False  # a request was not the one that the workload has there

    @classmethod
    def of(cls, t_ns: int, settings: dict[str, Any]) -> _Load:
        name, streams = settings.get("workload") or "", settings.get("concurrency")
        context = settings.get("max_context") or 2
        return cls(t_ns, name, streams, context, _workload(name, settings))

    def next(self, prompt_tokens: int) -> Source:
        number, self.sent = self.sent, self.sent + 1
        return Source(self.began_ns, self.streams, self._pieces(number, prompt_tokens))

    def _pieces(self, number: int, prompt_tokens: int) -> tuple[Piece, ...]:
        """What the prompt is put together of, if the recorded one has the length it should."""
        if self.workload is None or self.astray:
            return ()
        item = self.workload.item(number)
        length = clip(item.prompt_tokens, item.output_tokens, self.max_context)[0]
        self.astray = length != prompt_tokens
        return () if self.astray else item.pieces

    @property
    def unknown(self) -> bool:
        """Whether nobody knows which texts its prompts share."""
        return bool(self.sent) and (self.workload is None or self.astray)


def _workload(name: str, settings: dict[str, Any]) -> Workload | None:
    """A built-in one; a file's name says neither where it lies nor whether it is the same."""
    if name not in WORKLOADS:
        return None
    as_recorded = settings.get("scale") is None  # a trace that was not scaled down
    found = load_workload(name, seed=settings.get("seed") or 0, as_recorded=as_recorded)
    scale = found.scale.to_json() if found.scale else None
    return found if scale == settings.get("scale") else None


@dataclass(slots=True)
class Loads:
    """The loads of a run, one after another."""

    loads: list[_Load] = field(default_factory=list)

    @classmethod
    def of(cls, changes: pd.DataFrame) -> Loads:
        """From the events of kind `load` (see telemetry.queries.replay.changes)."""
        events = changes[changes["kind"] == "load"]
        pairs = zip(events["t_ns"], events["detail"], strict=True)
        return cls([_Load.of(int(t_ns), json.loads(detail)) for t_ns, detail in pairs])

    def source(self, arrived_ns: int, label: str | None, prompt_tokens: int) -> Source:
        """Of the next request in recorded order; a person's prompt came by the clock."""
        began = [load.began_ns for load in self.loads]
        place = bisect_right(began, arrived_ns + _SLACK_NS) - 1
        if place < 0 or label is None or label.split(":")[0] != self.loads[place].name:
            return Source()
        return self.loads[place].next(prompt_tokens)

    def notes(self) -> tuple[str, ...]:
        """For people: where a prefix cache would find more than a replay can know."""
        names = sorted({load.name for load in self.loads if load.unknown})
        return tuple(
            f"which texts the prompts of '{name}' share is not recorded: no prefix hits among them"
            for name in names
        )
