"""What every measurement needs: who is measured, how often, and whether the machine was idle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from app.bench.loads import LOADS, ClientLoad, client_loads, random_prompts
from app.bench.machine import CLEAN_FOREIGN, Watch
from app.bench.side import Side
from app.bench.stats import Spread
from telemetry.clock import sleep_s

CONTEXT = 128  # tokens of prompt before the decode steps that are measured
STEPS = 32  # decode steps of one measurement
SETTLE_S = 0.05
# Threads spin for a while after their last work: with vLLM asleep for only 50 ms, our prompt of 128
# tokens took 0.9 s instead of 0.07.
PEER_SETTLE_S = 1.0


@dataclass(slots=True)
class Bench:
    """Shared by all parts of one bench; prompts are never the same twice."""

    repeats: int
    say: Callable[[str], None]
    loads: tuple[str, ...] = LOADS
    watch: Watch = field(default_factory=Watch)
    _seeds: count[int] = field(default_factory=count)

    def prompts(self, vocab: int, *lengths: int) -> list[list[int]]:
        """Fresh random prompts of these lengths."""
        return random_prompts(lengths, vocab, next(self._seeds))

    def client_loads(self) -> list[ClientLoad]:
        """Those that were asked for."""
        known = client_loads()
        return [known[name] for name in self.loads]


@dataclass(slots=True)
class Samples:
    """Answers to one question, asked again and again, and others' share of the CPU meanwhile."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    foreign: float = 0.0
    settle_s: float = SETTLE_S

    def ask(self, bench: Bench, side: Side, command: str, **arguments: Any) -> dict[str, Any]:
        sleep_s(self.settle_s)
        answer, share = bench.watch.during(lambda: side.ask(command, **arguments))
        self.answers.append(answer)
        self.foreign = max(self.foreign, share)
        return answer

    def values(self, key: str) -> list[float]:
        return [answer[key] for answer in self.answers]

    def spread(self, key: str) -> Spread:
        return Spread.of(self.values(key))

    def median(self, key: str) -> float | None:
        """None where the side cannot know it."""
        known = [v for v in self.values(key) if v is not None]
        return Spread.of(known).median if known else None


def cleanliness(*samples: Samples) -> dict[str, Any]:
    """Whether the figures count."""
    foreign = max(s.foreign for s in samples)
    return {"foreign": foreign, "clean": foreign <= CLEAN_FOREIGN}


def spread_row(name: str, spread: Spread) -> dict[str, float]:
    """Median under the name itself, least and greatest beside it."""
    return {name: spread.median, f"{name}_low": spread.low, f"{name}_high": spread.high}
