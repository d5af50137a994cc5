"""Turns a workload into requests at the right moments; the engine asks between steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from engine.errors import UserError
from engine.request import Request, SamplingParams
from engine.workloads.prompts import PromptSource
from engine.workloads.workload import WorkItem, Workload

MAX_RATE = 1000  # requests/s; more than any engine here could begin to answer
_AT_MOST = 1024  # requests of one call

Due = list[tuple[float | None, Request]]


class LoadGenerator:
    """Closed loop (concurrency), open at a rate, or as the workload itself arrives.

    A workload without times or a closed loop of its own is all there at once, and then bounded (by
    its default_requests if no one gives a number). Requests ignore EOS, so that lengths are exactly
    the workload's, but for those clipped to max_context: a person's own file is refused instead.
    """

    def __init__(
        self,
        workload: Workload,
        prompts: PromptSource,
        *,
        concurrency: int | None,
        rate: float | None,
        requests: int | None,
        seed: int,
        max_context: int,
    ) -> None:
        """rate in requests/s, max_context in tokens. UserError for what cannot be."""
        check_settings(concurrency, rate, requests, max_context)
        self.workload, self.seed, self.max_context = workload, seed, max_context
        own = workload.concurrency if rate is None else None
        self.concurrency, self.rate = own if concurrency is None else concurrency, rate
        self.clipped = 0
        """Requests so far that max_context made shorter."""
        self._prompts = prompts
        self._limit = self._bound(requests)
        if workload.file is not None:
            self._check_fits(workload.file)
        self._next = 0
        self._arrivals = self._arrival_times()
        self._arrival_s = next(self._arrivals, None)

    def poll(self, load_clock_s: float, in_flight: int) -> Due:
        """Requests due now, each with its scheduled arrival on the load clock (closed loop: None).

        load_clock_s stands still while paused; in_flight counts unfinished requests. What is left
        of a burst comes with the next call, so that no call keeps the engine for long.
        """
        due: Due = []
        while (
            len(due) < _AT_MOST
            and not self.exhausted
            and self._is_due(load_clock_s, in_flight + len(due))
        ):
            due.append((self._arrival_s, self._request(self._next)))
            self._next += 1
            self._arrival_s = next(self._arrivals, None)
        return due

    def next_arrival_s(self) -> float | None:
        """Load clock of the next arrival; None in a closed loop or at the end."""
        return None if self.exhausted else self._arrival_s

    @property
    def exhausted(self) -> bool:
        """Whether no request will come any more."""
        return self._limit is not None and self._next >= self._limit

    @property
    def settings(self) -> dict[str, object]:
        """What shaped the load, for the run's config."""
        scale = self.workload.scale
        return {
            "workload": self.workload.name,
            "description": self.workload.description,
            "scale": scale.to_json() if scale else None,
            "requests": self._limit,
            "concurrency": self.concurrency,
            "rate": self.rate,
            "seed": self.seed,
            "max_context": self.max_context,
        }

    def _check_fits(self, file: Path) -> None:
        """Every row that will run, before the first one runs."""
        rows = self.workload.default_requests
        for k in range(rows if self._limit is None else min(rows, self._limit)):
            item = self.workload.item(k)
            prompt, output = self._prompt_tokens(item, k), item.output_tokens
            if prompt + output > self.max_context:
                raise UserError(
                    f"workload file {file}, line {item.line}: prompt of {prompt} tokens + {output} "
                    f"to generate = {prompt + output}, but the model's context is "
                    f"{self.max_context}: shorten the row or use a model with a longer context"
                )

    def _prompt_tokens(self, item: WorkItem, k: int) -> int:
        # A length is believed before a prompt of that length is built: it may be absurd.
        if item.prompt is None:
            return item.prompt_tokens
        return len(self._prompts.for_item(item, self.seed, k))

    def _bound(self, requests: int | None) -> int | None:
        limit = requests if requests is not None else self.workload.requests
        at_once = self.concurrency is None and self.rate is None and not self.workload.timed
        return self.workload.default_requests if limit is None and at_once else limit

    def _arrival_times(self) -> Iterator[float | None]:
        if self.concurrency is not None:
            return iter(())
        if self.rate is not None:
            return _poisson(self.rate, self.seed)
        return (self.workload.item(k).arrival_s or 0.0 for k in count())

    def _is_due(self, load_clock_s: float, in_flight: int) -> bool:
        if self.concurrency is not None:
            return in_flight < self.concurrency
        return self._arrival_s is not None and self._arrival_s <= load_clock_s

    def _request(self, k: int) -> Request:
        item = self.workload.item(k)
        prompt = self._prompts.for_item(item, self.seed, k)
        tokens, output = clip(len(prompt), item.output_tokens, self.max_context)
        self.clipped += (tokens, output) != (len(prompt), item.output_tokens)
        sampling = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True)
        return Request(prompt[:tokens], sampling, label=item.label)


def clip(prompt_tokens: int, output_tokens: int, max_context: int) -> tuple[int, int]:
    """Lengths that fit together: the output is cut to half the context, then the prompt.

    Whatever fits is left alone, and a short prompt leaves the output more than half.
    """
    if prompt_tokens + output_tokens <= max_context:
        return prompt_tokens, output_tokens
    output = min(output_tokens, max(max_context // 2, max_context - prompt_tokens))
    return min(prompt_tokens, max_context - output), output


def _poisson(rate: float, seed: int) -> Iterator[float]:
    """Arrival instants with exponential gaps, seconds."""
    rng = random.Random(f"{seed}:arrivals")
    arrival_s = 0.0
    while True:
        arrival_s += rng.expovariate(rate)
        yield arrival_s


def check_settings(
    concurrency: int | None,
    rate: float | None,
    requests: int | None,
    max_context: int | None = None,
) -> None:
    """Raise UserError unless these settings can make a load."""
    rules: list[tuple[str, float | None, Callable[[float], bool], str]] = [
        ("concurrency", concurrency, lambda v: v >= 1, "1 or more"),
        (
            "rate",
            rate,
            lambda v: 0 < v <= MAX_RATE,
            f"more than 0 and at most {MAX_RATE:,} requests/s",
        ),
        ("requests", requests, lambda v: v >= 1, "1 or more"),
        ("max_context", max_context, lambda v: v >= 2, "2 tokens or more"),
    ]
    for name, value, allowed, use in rules:
        if value is not None and not allowed(value):
            raise UserError(f"{name} is {value}: use {use}")
    if concurrency is not None and rate is not None:
        raise UserError(
            "concurrency (closed loop) and rate (open loop) exclude each other: give one"
        )
