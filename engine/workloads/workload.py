"""What a workload is: request k of a seed, whenever it is asked for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

from engine.errors import UserError


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt: equal names are equal text, of which `tokens` tokens are taken."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One request of a workload.

    arrival_s: seconds after the load began; None where the workload sets no time. prompt: the text
    itself where a file gives it. label: workload and role. pieces: what the prompt is put together
    of, where it shares text with others; too many are cut, too few filled up. line: where a file
    says it.
    """

    arrival_s: float | None
    prompt_tokens: int
    output_tokens: int
    prompt: str | None
    label: str
    pieces: tuple[Piece, ...] = ()
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """Factors that fit a recorded load to a small machine; lengths are rounded, at least 1."""

    prompt: float = 1.0
    output: float = 1.0
    time: float = 1.0

    def apply(self, item: WorkItem) -> WorkItem:
        """Shared pieces shrink with the prompt, so that what was shared still is."""
        return replace(
            item,
            arrival_s=None if item.arrival_s is None else item.arrival_s * self.time,
            prompt_tokens=self._prompt_tokens(item.prompt_tokens),
            output_tokens=max(1, round(item.output_tokens * self.output)),
            pieces=tuple(Piece(p.name, self._prompt_tokens(p.tokens)) for p in item.pieces),
        )

    def _prompt_tokens(self, tokens: int) -> int:
        return max(1, round(tokens * self.prompt))

    def __str__(self) -> str:
        factors = (("prompts", self.prompt), ("outputs", self.output), ("time", self.time))
        return ", ".join(f"{name} {_factor(value)}" for name, value in factors)

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def _factor(value: float) -> str:
    return f"/ {1 / value:g}" if value < 1 else f"x {value:g}"


@dataclass(frozen=True, slots=True)
class Workload:
    """A named stream of requests. item(k) depends on the seed and k alone.

    requests None: endless. default_requests: how many a bounded run takes when no one says.
    scale None: lengths and times are as written. timed: items carry arrival times of their own.
    concurrency: the closed loop that is natural to it, unless someone says otherwise. file: a
    person's own, whose rows run as they are or are refused, never cut.
    """

    name: str
    description: str
    default_requests: int
    item: Callable[[int], WorkItem]
    requests: int | None = None
    scale: Scale | None = None
    timed: bool = False
    concurrency: int | None = None
    file: Path | None = None

    @property
    def items(self) -> Iterator[WorkItem]:
        """The requests in order from the first: `requests` of them, or endless."""
        numbers = count() if self.requests is None else range(self.requests)
        return (self.item(k) for k in numbers)

    def bounded(self, requests: int | None) -> Workload:
        """The same stream cut to a number of requests. UserError below 1."""
        if requests is not None and requests < 1:
            raise UserError(f"requests is {requests}: use 1 or more")
        return replace(self, requests=requests)


def item_rng(seed: int, what: str, k: int) -> random.Random:
    """Randomness of item k: the same whatever was drawn before."""
    return random.Random(f"{seed}:{what}:{k}")
