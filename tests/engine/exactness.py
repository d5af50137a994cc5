"""What the exactness tests and their report share: workloads, and every way to run them.

Every random number here comes from SEED, which nobody chose for its outcome.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from engine.backends.cpu import CPUBackend
from engine.block_manager import BlockManager
from engine.engine import Engine
from engine.models.weights import ModelSource
from engine.request import Request, SamplingParams
from engine.schedulers import SCHEDULERS
from engine.step_record import Accounting, Peaks
from engine.workloads.prompts import PromptSource
from telemetry.clock import sleep_s
from tests.engine.recording import Recording

SEED = 0
SWITCHES = 200
BLOCK_SIZE = 16
LONGEST = 96  # prompt and output tokens of a request: six blocks

Tokens = dict[int, list[int]]
Disturbance = Callable[[Engine], None]


# --- workloads ---


_PROMPTS: dict[str, PromptSource] = {}  # by model: reading and encoding the texts takes a second


def _prompts(source: ModelSource) -> PromptSource:
    if source.path not in _PROMPTS:
        _PROMPTS[source.path] = PromptSource(source.tokenizer)
    return _PROMPTS[source.path]


def workload(source: ModelSource, seed: int = SEED) -> list[Request]:
    """Greedy requests: long answers to short prompts, then all sizes mixed.

    Of the mixed ones every other begins with a system prompt that all share.
    """
    prompts, rng = _prompts(source), random.Random(seed)
    system = prompts.cut(36, rng)

    def request(prompt: tuple[int, ...], output: int) -> Request:
        tokens = tuple(t % source.config.vocab for t in prompt)
        return Request(tokens, SamplingParams(output, ignore_eos=True))

    long = [request(prompts.cut(rng.randint(1, 12), rng), 34) for _ in range(4)]
    mixed = []
    for k in range(32):
        own = prompts.cut(rng.randint(1, 36), rng)
        mixed.append(request(system + own if k % 2 else own, rng.choice((1, 3, 8, 24))))
    return long + mixed


# --- runs ---


@dataclass
class Outcome:
    """Tokens by request, and what happened on the way."""

    tokens: Tokens
    steps: int
    preemptions: int
    hits: int
    switches: int


def generate(
    backend: CPUBackend,
    source: ModelSource,
    requests: list[Request],
    *,
    dtype: str = "fp32",
    blocks: int = 64,
    disturb: Disturbance | None = None,
    **settings: object,
) -> Outcome:
    """Run all requests to their end, checking the books after every step."""
    recording, manager = Recording(), BlockManager(blocks, BLOCK_SIZE)
    accounting = Accounting(source.config.spec(), dtype, "bf16", Peaks(1e12, 1e11))
    engine = Engine(
        backend,
        manager,
        accounting,
        source.tokenizer,
        recording,
        recording.messages.append,
        **{"scheduler": "continuous", "max_batch": 4} | settings,  # type: ignore[arg-type]
    )
    for request in requests:
        engine.submit(request)
    while engine.has_work:
        if disturb is not None:
            disturb(engine)
        if not engine.step():
            sleep_s(0.002)  # an incomplete static cohort waits for its window
        engine.check_integrity()
    assert (manager.num_used, manager.num_free) == (0, manager.num_blocks)
    assert all(r.finish_reason == "length" for r in recording.requests.values())
    return Outcome(
        recording.tokens,
        len(recording.steps),
        sum(r.preemptions for r in recording.requests.values()),
        sum(r.cached_tokens for r in recording.requests.values()),
        sum(e.kind not in ("preempt", "peak_beaten") for e in recording.events),
    )


@dataclass
class Switching:
    """Before every step a random mode: scheduler, max batch, budget, prefix cache, KV blocks."""

    capacity: int
    rng: random.Random

    def __call__(self, engine: Engine) -> None:
        rng, least = self.rng, LONGEST // BLOCK_SIZE
        engine.configure(
            scheduler=rng.choice(sorted(SCHEDULERS)),
            max_batch=rng.randint(1, 3),
            chunk_tokens=rng.choice((1, 7, 64, 512)),
            prefix_cache=rng.random() < 0.5,
            kv_blocks=rng.randint(least, self.capacity),
        )


@dataclass(frozen=True)
class Case:
    """One way to run a part of the workload.

    tight: long answers in so few blocks that sequences must give way.
    """

    name: str
    settings: dict[str, object]
    tight: bool = False
    switching: bool = False

    @property
    def part(self) -> slice:
        return slice(0, 6) if self.tight else slice(0, None) if self.switching else slice(4, 14)

    def run(
        self,
        backend: CPUBackend,
        source: ModelSource,
        dtype: str,
        requests: list[Request],
        seed: int = SEED,
    ) -> Outcome:
        blocks = 6 if self.tight else 12 if self.switching else 64
        return generate(
            backend,
            source,
            requests[self.part],
            dtype=dtype,
            blocks=blocks,
            disturb=Switching(blocks, random.Random(seed)) if self.switching else None,
            **self.settings,
        )


CASES = (
    Case("budget 1", {"scheduler": "chunked", "chunk_tokens": 1}),
    Case(
        "budget 7, prefix cache", {"scheduler": "chunked", "chunk_tokens": 7, "prefix_cache": True}
    ),
    Case("budget 64", {"scheduler": "chunked", "chunk_tokens": 64, "max_batch": 8}),
    Case("budget 512", {"scheduler": "chunked", "chunk_tokens": 512}),
    Case("continuous", {"max_batch": 8}),
    Case("continuous, prefix cache", {"prefix_cache": True}),
    Case("static", {"scheduler": "static"}),
    Case("static, prefix cache", {"scheduler": "static", "prefix_cache": True}),
    Case("preempted", {}, tight=True),
    Case("preempted, budget 7", {"scheduler": "chunked", "chunk_tokens": 7}, tight=True),
    Case("preempted, prefix cache", {"prefix_cache": True}, tight=True),
    Case("200 switches", {}, switching=True),
)


def reference(
    backend: CPUBackend, source: ModelSource, dtype: str, requests: list[Request]
) -> list[list[int]]:
    """Every request alone, one after the other, whole prompts, nothing cached."""
    alone = generate(backend, source, requests, dtype=dtype, scheduler="no-batching").tokens
    return [alone[i] for i in range(len(requests))]
