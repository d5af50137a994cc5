"""The client workloads, each from a seed: who asks what, all at once."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FIRST_TOKEN = 100  # below lie special tokens in most vocabularies
_SEED = 0


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """Requests that are all there at once: prompt and output lengths, in tokens."""

    name: str
    what: str
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    @property
    def total_output_tokens(self) -> int:
        return sum(self.output_tokens)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output."""
        return max(p + o for p, o in zip(self.prompt_tokens, self.output_tokens, strict=True))


def random_prompts(lengths: tuple[int, ...], vocab: int, seed: int) -> list[list[int]]:
    """One prompt of random token ids for each length."""
    ids = random.Random(f"prompts {seed}")
    first = min(FIRST_TOKEN, vocab // 2)
    return [[ids.randrange(first, vocab) for _ in range(length)] for length in lengths]


LOADS = ("w16", "A", "B")


def client_loads() -> dict[str, ClientLoad]:
    """By name: w16, A and B."""
    rng = np.random.default_rng(_SEED)
    lengths = _lognormal(rng, sigma=1.0, least=4, most=512, count=40)
    prompts = tuple(int(n) for n in rng.integers(64, 257, 40))
    skewed = _lognormal(np.random.default_rng(_SEED), sigma=0.8, least=8, most=128, count=16)
    loads = (
        ClientLoad("w16", "16 clients, outputs of 8 to 128", (128,) * 16, skewed),
        ClientLoad("A", "one output of 512, nine of 16", (128,) * 10, (512,) + (16,) * 9),
        ClientLoad("B", "40 requests, outputs of 4 to 512", prompts, lengths),
    )
    return {load.name: load for load in loads}


def _lognormal(
    rng: np.random.Generator, *, sigma: float, least: int, most: int, count: int
) -> tuple[int, ...]:
    """Lengths of mean 64 before they are cut to least .. most."""
    drawn: NDArray[np.float64] = rng.lognormal(math.log(64) - sigma**2 / 2, sigma, count)
    return tuple(int(n) for n in np.clip(drawn.astype(np.int64), least, most))
