"""Whether what a token gets depends on what runs beside it: tried on the packed model at load."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.backends.base import Backend
from engine.batch import Chunk, ScheduledBatch
from engine.physics.model_spec import ModelSpec
from engine.request import Request
from engine.sequence import Sequence

_TOKENS = 12  # more than the rows up to which a step runs on quantised weights
_BESIDE = 11
_CUTS = (5, _TOKENS - 1)  # the prompt in two chunks, and with its last token as a decode


@dataclass(frozen=True, slots=True)
class RowInvariance:
    """What the probe saw, bit for bit; None where the cache or context is too small to look.

    row_invariant: a token's logits are the same beside other sequences as alone.
    chunk_invariant: they are the same however its context was cut into steps.
    False is certain. True is what a dozen tokens showed: a probe, not a proof.
    """

    row_invariant: bool | None
    chunk_invariant: bool | None


def probe(backend: Backend, spec: ModelSpec, kv_slots: int, block_size: int) -> RowInvariance:
    """Run a short prompt alone, beside another one, and in chunks: about 70 rows in 7 steps.

    Called before anything is cached, since it writes to the first slots of the KV cache.
    """
    blocks = -(-_TOKENS // block_size)
    if kv_slots < 2 * blocks * block_size or spec.max_context < _TOKENS:
        return RowInvariance(None, None)
    return _Probe(backend, spec.vocab, blocks, block_size).result()


class _Probe:
    """One prompt in the first blocks of the cache, its neighbour in those behind."""

    def __init__(self, backend: Backend, vocab: int, blocks: int, block_size: int) -> None:
        self._backend, self._block_size = backend, block_size
        self._table = list(range(blocks))
        tokens = tuple((7919 * k + 1) % vocab for k in range(_TOKENS + _BESIDE))
        self._prompt = tokens[:_TOKENS]
        self._neighbour = self._chunk(tokens[_TOKENS:], 0, [blocks + b for b in self._table])

    def _chunk(self, tokens: tuple[int, ...], start: int, table: list[int]) -> Chunk:
        sequence = Sequence(0, Request(tokens))
        sequence.hold(table, self._block_size)
        sequence.slot = 0
        return Chunk(sequence, start, len(tokens) - start)

    def _logits(self, start: int, end: int, *beside: Chunk) -> Tensor:
        """Of the last of the prompt's tokens start … end - 1."""
        plan = ScheduledBatch([*beside, self._chunk(self._prompt[:end], start, self._table)])
        logits: Tensor = self._backend.forward(self._backend.prepare(plan))[-1]
        return logits.clone()  # the next step may overwrite them

    def result(self) -> RowInvariance:
        alone = self._logits(0, _TOKENS)
        same_rows = torch.equal(alone, self._logits(0, _TOKENS, self._neighbour))
        same_chunks = True
        for first in _CUTS:
            self._logits(0, first)
            last = self._logits(first, _TOKENS)
            same_chunks &= torch.equal(alone, last)
        beside = self._logits(first, _TOKENS, self._neighbour)  # a decode, as the last cut's
        return RowInvariance(same_rows and torch.equal(last, beside), same_chunks)
