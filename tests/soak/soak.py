"""Random load, switches, cancels, resizes and tiny caches on a real engine, between its steps."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.backends.cpu import CPUBackend
from engine.block_manager import BlockManager
from engine.engine import Engine
from engine.errors import UserError
from engine.models.weights import ModelSource
from engine.request import Request, RequestError, SamplingParams
from engine.schedulers import SCHEDULERS
from engine.step_record import Accounting, Peaks
from telemetry.clock import sleep_s
from telemetry.recorder import Recorder
from tests.soak.watch import MIB, Memory, Watch

BLOCK_SIZE = 16
BLOCKS = 26
GROWTH_BOUND_BYTES = 16 * MIB
MOST_IN_FLIGHT = 24
REMEMBERED = 8  # greedy answers that are asked again alone when the engine is idle

Finished = Callable[[], bool]


@dataclass(frozen=True)
class Subject:
    """What is soaked. exact: its tokens must be the same under every schedule."""

    source: ModelSource
    backend: CPUBackend
    dtype: str
    exact: bool


class Soak:
    """One engine from its first request to its last."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject, self.rng = subject, random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.memory = Memory()
        self._texts = [self._tokens(60) for _ in range(4)]  # system prompts
        self._asked: dict[int, Request] = {}
        self._to_check: list[tuple[Request, list[int]]] = []
        self._calm = 0  # steps until the load goes on
        self._recorder = Recorder(self._sent, droppable=False)
        self.watch = Watch(self._recorder)
        self.blocks = BlockManager(BLOCKS, BLOCK_SIZE)
        config = subject.source.config
        self.engine = Engine(
            subject.backend,
            self.blocks,
            Accounting(config.spec(), subject.dtype, "bf16", Peaks(1e15, 1e15)),
            subject.source.tokenizer,
            self.watch,
            self.watch.heard,
            scheduler="continuous",
            max_batch=8,
        )

    def _sent(self, envelope: bytes) -> None:
        self.counts["telemetry_bytes"] += len(envelope)

    def run(self, enough: Finished) -> dict[str, Any]:
        """Until enough() says so, then to the end of all that runs; the figures.

        AssertionError or IntegrityError for anything lost, leaked, doubled or changed.
        """
        while not enough():
            self._between_steps()
            self._step()
        self._drain()
        self._recorder.close()
        return self._figures()

    # --- one step ---

    def _between_steps(self) -> None:
        rng = self.rng
        if self._calm:
            self._calm -= 1
        elif self.engine.in_flight < MOST_IN_FLIGHT and rng.random() < 0.3:
            for _ in range(rng.choice((1, 1, 1, 5))):
                self._submit()
        if rng.random() < 0.03 and self.watch.outputs:
            self._cancel()
        if rng.random() < 0.003:
            self._drain()
        if rng.random() < 0.01:
            self._calm = rng.randint(1, 60)
        self._maybe_configure()

    def _step(self) -> None:
        if not self.engine.step():
            sleep_s(0.001)  # idle, or an incomplete static cohort waits for its window
        self.engine.check_integrity()
        self.memory.sample()
        self._settle()

    def _settle(self) -> None:
        """Those who have ended are asked for no more."""
        for request_id, (tokens, reason) in self.watch.take_ended().items():
            request = self._asked.pop(request_id)
            if reason == "length" and request.sampling.temperature == 0:
                self._remember(request, tokens)

    def _remember(self, request: Request, tokens: list[int]) -> None:
        if len(self._to_check) < REMEMBERED and self.rng.random() < 0.05:
            self._to_check.append((request, tokens))

    def _drain(self) -> None:
        """Let everybody end: all blocks are free, nobody is lost, and answers come again alone."""
        while self.engine.has_work:
            self._maybe_configure()
            self._step()
        self._settle()  # somebody may have been cancelled since the last step
        assert not self.watch.outputs, "the engine lost requests"
        assert not self._asked, "nobody heard of the end of a request"
        assert (self.blocks.num_used, self.blocks.num_tables) == (0, 0), "blocks were lost"
        assert self.blocks.num_free == self.blocks.num_blocks
        self.counts["drains"] += 1
        self._check_answers()

    def _check_answers(self) -> None:
        checked, self._to_check = self._to_check, []
        self.engine.configure(scheduler="no-batching", prefix_cache=False, kv_blocks=BLOCKS)
        for request, tokens in checked if self.subject.exact else ():
            request_id = self._ask(request)
            while self.engine.has_work:
                self.engine.step()
            assert self.watch.take_ended()[request_id][0] == tokens, "a schedule changed an answer"
            del self._asked[request_id]
            self.counts["answers_checked"] += 1

    # --- what can happen ---

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self.rng.choices(range(self.subject.source.config.vocab), k=count))

    def _submit(self) -> None:
        rng = self.rng
        begin = rng.choice(self._texts)[: rng.choice((0, 16, 40, 60))]
        prompt = begin + self._tokens(rng.choice((1, 3, 3, 20, 90, 200)))
        sampling = SamplingParams(
            rng.choice((1, 8, 30, 120, 120)),
            temperature=rng.choice((0.0, 0.0, 0.8)),
            ignore_eos=rng.random() < 0.8,
            stop=("e",) if rng.random() < 0.1 else (),
        )
        try:
            self._ask(Request(prompt, sampling))
        except RequestError:
            self.counts["refused_requests"] += 1

    def _ask(self, request: Request) -> int:
        request_id = self.engine.submit(request)
        self._asked[request_id] = request
        self.watch.submitted(request_id)
        return request_id

    def _cancel(self) -> None:
        request_id = self.rng.choice(sorted(self.watch.outputs))
        assert self.engine.cancel(request_id)
        assert not self.engine.cancel(request_id), "it has ended"
        self.engine.check_integrity()

    def _maybe_configure(self) -> None:
        rng = self.rng
        if rng.random() > 0.1:
            return
        settings: dict[str, Any] = {
            "scheduler": rng.choice(sorted(SCHEDULERS)),
            "max_batch": rng.choice((1, 2, 5, 16)),
            "chunk_tokens": rng.choice((1, 7, 64, 512)),
            "prefix_cache": rng.random() < 0.8,
            "kv_blocks": rng.choice((3, 8, 14, 20, BLOCKS)),
        }
        chosen = rng.sample(sorted(settings), k=rng.randint(1, len(settings)))
        try:
            self.engine.configure(**{name: settings[name] for name in chosen})
            self.counts["changes"] += 1
        except UserError:  # fewer blocks than somebody who runs can need
            self.counts["refused_changes"] += 1
        self.engine.check_integrity()

    # --- the result ---

    def _figures(self) -> dict[str, Any]:
        growth, slope = self.memory.growth()
        samples = self.memory.samples
        counts = {**self.counts, **self.watch.counts}
        return {
            "model": self.subject.source.config.name,
            "dtype": self.subject.dtype,
            "kernels": self.subject.backend.kernels,
            **dict(sorted(counts.items())),
            "rss_first_bytes": samples[0][1] if samples else None,
            "rss_last_bytes": samples[-1][1] if samples else None,
            "rss_growth_after_warm_up_bytes": round(growth),
            "rss_slope_bytes_per_minute": round(slope),
            "memory_is_flat": growth < GROWTH_BOUND_BYTES,
        }
