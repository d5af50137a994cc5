"""Logits by hand, and whether two answers part at a tie.

On the vector kernels no schedule changes a bit in fp32 and bf16. Elsewhere sums have more than one
order, so two schedules may part where the two best logits are nearer to each other than rounding
moves them. That such a place is a tie is proven by its logits, never assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.backends.cpu import CPUBackend
from engine.batch import Chunk, ScheduledBatch
from engine.models.weights import ModelSource
from engine.request import Request
from engine.sequence import Sequence
from tests.engine.exactness import BLOCK_SIZE, SEED, Case, Outcome, Tokens, reference, workload

TIE_FP32 = 1e-4  # the bound on the gap of the two best logits
MANY_ROWS = 9  # with so many int8 and int4 run on bf16 copies of the weights


def place(sequence: Sequence, blocks: list[int]) -> Sequence:
    """Hold blocks as the queue would."""
    sequence.hold(blocks, BLOCK_SIZE)
    sequence.slot = 0
    return sequence


def logits_of_last(backend: CPUBackend, tokens: list[int] | tuple[int, ...]) -> Tensor:
    """Logits [vocab] after the tokens, from one prefill of a sequence alone."""
    blocks = -(-len(tokens) // BLOCK_SIZE)
    sequence = place(Sequence(0, Request(tuple(tokens))), list(range(blocks)))
    plan = ScheduledBatch([Chunk(sequence, 0, len(tokens))])
    logits: Tensor = backend.forward(backend.prepare(plan))
    return logits[0].clone()


def logits_by_decoding(backend: CPUBackend, tokens: list[int] | tuple[int, ...]) -> Tensor:
    """Logits [len(tokens), vocab] after each token, one token a step."""
    blocks = list(range(-(-len(tokens) // BLOCK_SIZE)))
    rows = []
    for end in range(1, len(tokens) + 1):
        sequence = place(Sequence(0, Request(tuple(tokens[:end]))), blocks)
        plan = ScheduledBatch([Chunk(sequence, end - 1, 1)])
        rows.append(backend.forward(backend.prepare(plan))[0].clone())
    return torch.stack(rows)


# --- ties ---


@dataclass
class Tally:
    """Requests and tokens compared, and the gaps of logits where two answers part at a tie.

    A request is compared up to its first difference: what follows has other contexts.
    """

    requests: int = 0
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        largest = f", largest gap {max(self.gaps):.1e}" if self.gaps else ""
        rate = len(self.gaps) / self.tokens
        return (
            f"{self.requests} requests, {self.tokens} tokens, {len(self.gaps)} ties "
            f"({rate:.2%} of tokens){largest}"
        )

    def __iadd__(self, other: Tally) -> Tally:
        self.requests += other.requests
        self.tokens += other.tokens
        self.gaps += other.gaps
        return self


def exact(backend: CPUBackend, dtype: str) -> bool:
    """Whether equal bits are promised: one order of every sum, and one copy of the weights."""
    return backend.kernels == "vector" and dtype in ("fp32", "bf16")


def tie_bound(backend: CPUBackend, dtype: str, requests: list[Request]) -> float:
    """Gap up to which two tokens are a tie; 0 where there can be none."""
    if exact(backend, dtype):
        return 0.0
    return TIE_FP32 if dtype == "fp32" else noise(backend, requests)


def noise(backend: CPUBackend, requests: list[Request]) -> float:
    """How far a schedule moves the two best logits against each other, at most, as measured.

    One row a step against whole prompts, over the prompts given.
    """
    moved = 0.0
    for request in requests:
        prompt = request.prompt_token_ids
        decoded = logits_by_decoding(backend, prompt)
        for end in range(len(prompt), MANY_ROWS, -3):
            best, second = decoded[end - 1].topk(2).indices.tolist()
            change = decoded[end - 1] - logits_of_last(backend, prompt[:end])
            moved = max(moved, abs(float(change[best] - change[second])))
    return moved


def compare(
    backend: CPUBackend,
    requests: list[Request],
    expected: list[list[int]],
    found: Tokens,
    bound: float,
) -> Tally:
    """AssertionError unless every request is equal, or first differs at a tie within bound."""
    tally = Tally()
    assert [len(found[i]) for i in range(len(requests))] == [len(e) for e in expected]
    for number, (request, a) in enumerate(zip(requests, expected, strict=True)):
        tally.requests += 1
        parts = (i for i, (x, y) in enumerate(zip(a, found[number], strict=True)) if x != y)
        at = next(parts, None)
        tally.tokens += len(a) if at is None else at + 1
        if at is None:
            continue
        logits = logits_of_last(backend, [*request.prompt_token_ids, *a[:at]])
        gap = float(logits.max() - min(logits[a[at]], logits[found[number][at]]))
        assert gap <= bound, f"request {number} differs at output {at}, logits {gap:.2e} apart"
        tally.gaps.append(gap)
    return tally


# --- one backend ---

KINDS = ("fp32 auto", "bf16 auto", "fp32 torch", "int8 auto", "int4 auto")  # dtype, kernels


def make_backend(source: ModelSource, kind: str) -> CPUBackend:
    """Raises UserError where it does not run."""
    dtype, kernels = kind.split()
    kv_dtype = "fp32" if dtype == "fp32" else "bf16"
    return CPUBackend(
        source, dtype=dtype, kv_dtype=kv_dtype, kv_slots=64 * BLOCK_SIZE, kernels=kernels
    )


class Bench:
    """A backend, what it answers undisturbed, and how near two logits are for a tie."""

    def __init__(
        self, source: ModelSource, dtype: str, backend: CPUBackend, seed: int = SEED
    ) -> None:
        self.source, self.dtype, self.backend, self.seed = source, dtype, backend, seed
        self.requests = workload(source, seed)
        self.bound = tie_bound(backend, dtype, self.requests[4:14])
        self.expected = reference(backend, source, dtype, self.requests)

    def run(self, case: Case) -> tuple[Outcome, Tally]:
        """AssertionError where an answer changes, but at a tie."""
        outcome = case.run(self.backend, self.source, self.dtype, self.requests, self.seed)
        part, tokens = case.part, outcome.tokens
        expected = self.expected[part]
        return outcome, compare(self.backend, self.requests[part], expected, tokens, self.bound)
