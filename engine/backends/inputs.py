"""From a plan to the tensors of one forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.batch import Chunk, ScheduledBatch
from kernels.linear import MIN_ROWS

CONTEXT_ROUND = 16  # contexts of a decode group are padded to a multiple of this
# Measured on two cores: a further group costs about as much as copying this many tokens of KV.
GROUP_COST_TOKENS = 768


@dataclass(slots=True)
class DecodeGroup:
    """Decoding rows `first`… that attend in one call, padded to one context length.

    run: (first KV slot, context) of a single sequence in one contiguous run, read in place.
    Otherwise gather: [rows * context] KV slots, and mask: [rows, 1, 1, context], True where real.
    """

    first: int
    rows: int
    context: int
    run: tuple[int, int] | None = None
    gather: Tensor | None = None
    mask: Tensor | None = None


@dataclass(slots=True)
class PrefillChunk:
    """Rows `first`… of one sequence from position `start`; slots: its context's KV slots."""

    first: int
    rows: int
    start: int
    run: tuple[int, int] | None
    slots: Tensor | None


@dataclass(slots=True)
class StepInputs:
    """Rows are ordered: decodes by falling context, then prefill chunks."""

    token_ids: Tensor
    positions: Tensor
    write_slots: Tensor
    sampled: Tensor
    num_sampled: int
    decodes: list[DecodeGroup]
    prefills: list[PrefillChunk]


def build_inputs(batch: ScheduledBatch, pad_token: int) -> StepInputs:
    """Flatten the chunks of a batch; sampled rows keep the order of the batch."""
    decodes = sorted((c for c in batch.chunks if c.rows == 1), key=lambda c: -c.end)
    prefills = [c for c in batch.chunks if c.rows > 1]
    ordered = decodes + prefills
    offsets = np.cumsum([0] + [c.rows for c in ordered])
    rows = _Rows(ordered, offsets, pad_token)
    last = {
        id(c): int(at) + c.tokens - 1 for c, at in zip(ordered, offsets, strict=False) if c.samples
    }
    sampled = [last[id(c)] for c in batch.chunks if c.samples]
    return StepInputs(
        token_ids=rows.tensor(rows.tokens),
        positions=rows.tensor(rows.positions),
        write_slots=rows.tensor(rows.slots),
        sampled=_at_least_min_rows(sampled),
        num_sampled=len(sampled),
        decodes=_decode_groups(decodes),
        prefills=_prefill_chunks(prefills, offsets[len(decodes) :]),
    )


class _Rows:
    """Token, position and KV slot of each row."""

    def __init__(self, chunks: list[Chunk], offsets: NDArray[np.int64], pad_token: int) -> None:
        total = int(offsets[-1])
        self.tokens = np.full(total, pad_token, dtype=np.int64)
        self.positions = np.empty(total, dtype=np.int64)
        self.slots = np.empty(total, dtype=np.int64)
        for chunk, at in zip(chunks, offsets, strict=False):
            self._fill(chunk, int(at))

    def _fill(self, chunk: Chunk, at: int) -> None:
        sequence, stop = chunk.sequence, chunk.start + chunk.rows
        assert sequence.slots is not None
        known = sequence.token_ids[chunk.start : chunk.end]
        self.tokens[at : at + len(known)] = known
        self.positions[at : at + chunk.rows] = range(chunk.start, stop)
        self.slots[at : at + chunk.rows] = sequence.slots[chunk.start : stop]

    def tensor(self, values: NDArray[np.int64]) -> Tensor:
        # Rows that fill up the least number repeat the first: it gets the same result twice, and
        # the cache the same values.
        fill = max(0, MIN_ROWS - len(values))
        return torch.from_numpy(np.pad(values, (0, fill), constant_values=values[0]))


def _at_least_min_rows(rows: list[int]) -> Tensor:
    fill = max(0, MIN_ROWS - len(rows)) if rows else 0
    return torch.tensor(rows + rows[:1] * fill, dtype=torch.int64)


def _decode_groups(decodes: list[Chunk]) -> list[DecodeGroup]:
    """Split where padding short contexts to the longest costs more than another call."""
    groups: list[DecodeGroup] = []
    first, waste = 0, 0
    for i, chunk in enumerate(decodes):
        waste += decodes[first].end - chunk.end
        if waste > GROUP_COST_TOKENS:
            groups.append(_decode_group(decodes[first:i], first))
            first, waste = i, 0
    if first < len(decodes):
        groups.append(_decode_group(decodes[first:], first))
    return groups


def _decode_group(chunks: list[Chunk], first: int) -> DecodeGroup:
    if len(chunks) == 1 and (run := _run(chunks[0])) is not None:
        return DecodeGroup(first, 1, chunks[0].end, run=run)
    context = -(-chunks[0].end // CONTEXT_ROUND) * CONTEXT_ROUND
    gather = np.zeros((len(chunks), context), dtype=np.int64)
    for row, chunk in zip(gather, chunks, strict=True):
        assert chunk.sequence.slots is not None
        row[: chunk.end] = chunk.sequence.slots[: chunk.end]
    lengths = np.fromiter((c.end for c in chunks), dtype=np.int64, count=len(chunks))
    mask = np.arange(context) < lengths[:, None]
    return DecodeGroup(
        first,
        len(chunks),
        context,
        gather=torch.from_numpy(gather.reshape(-1)),
        mask=torch.from_numpy(mask)[:, None, None, :],
    )


def _prefill_chunks(chunks: list[Chunk], offsets: NDArray[np.int64]) -> list[PrefillChunk]:
    return [
        PrefillChunk(int(at), c.rows, c.start, _run(c), _context_slots(c))
        for c, at in zip(chunks, offsets, strict=False)
    ]


def _run(chunk: Chunk) -> tuple[int, int] | None:
    """(first KV slot, context) where the sequence's blocks are one run."""
    sequence = chunk.sequence
    if not sequence.contiguous or sequence.slots is None:
        return None
    return int(sequence.slots[0]), chunk.start + chunk.rows


def _context_slots(chunk: Chunk) -> Tensor | None:
    if chunk.sequence.contiguous or chunk.sequence.slots is None:
        return None
    return torch.from_numpy(chunk.sequence.slots[: chunk.start + chunk.rows].copy())
