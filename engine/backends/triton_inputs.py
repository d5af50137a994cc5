"""From a plan to the columns of one step on the device."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.backends.device_copy import Column, Upload
from engine.backends.triton_model import Rows
from engine.batch import Chunk, ScheduledBatch
from engine.sampling import GREEDY
from engine.sequence import Sequence
from kernels.attention.triton_impl import paged_decode, paged_prefill
from kernels.sampling.tiles import Kind

# Widths of block tables are multiples of this: the compiler makes other code of a number that is
# not one of 16, and every width would otherwise be a case of its own.
_WIDTH_BLOCKS = 16


@dataclass(frozen=True, slots=True)
class Sampling:
    """How each sampled row's token is chosen, [sampled]: temperature (0: greedy) and top_p float32,
    seeds int64, steps int32 (its place in the request's output). kind: the most that any asks for.
    """

    temperature: Tensor
    top_p: Tensor
    seeds: Tensor
    steps: Tensor
    kind: Kind


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One step of any mixture. The first `decodes` rows are decodes, one for each of as many
    sequences; then the rows of prompts and chunks, one sequence after another from `starts` on.

    tables: int32 [sequences, width]; contexts: int32 [sequences], tokens in the cache after the
    step; starts: int32 [prompts + 1], counted from the first row that is no decode.
    """

    rows: Rows
    decodes: int
    tables: Tensor
    contexts: Tensor
    starts: Tensor
    block_size: int
    sampling: Sampling

    @property
    def num_sampled(self) -> int:
        return len(self.sampling.seeds)

    def attend(self, q: Tensor, cache: Tensor) -> Tensor:
        """As engine.backends.triton_model.Attention."""
        n, size = self.decodes, self.block_size
        out = q.new_empty(q.shape)
        if n:
            paged_decode(q[:n], cache, self.tables[:n], self.contexts[:n], size, out=out[:n])
        if n < len(q):
            paged_prefill(
                q[n:], cache, self.tables[n:], self.starts, self.contexts[n:], size, out=out[n:]
            )
        return out


def step_inputs(
    batch: ScheduledBatch, pad_token: int, block_size: int, upload: Upload
) -> StepInputs:
    """Flatten a batch; sampled rows keep the order of the batch."""
    chunks = sorted(batch.chunks, key=lambda c: c.rows > 1)
    decodes = sum(c.rows == 1 for c in chunks)
    ends = np.cumsum([c.rows for c in chunks])
    how = sampling_columns([c.sequence for c in batch.chunks if c.samples])
    found = upload(
        **_rows(chunks, pad_token),
        sampled=_sampled(batch.chunks, chunks, ends),
        tables=block_tables([c.sequence for c in chunks]),
        contexts=np.array([c.start + c.rows for c in chunks], np.int32),
        starts=np.concatenate([[decodes], ends[decodes:]]).astype(np.int32) - np.int32(decodes),
        **how,
    )
    rows = Rows(found["tokens"], found["positions"], found["slots"], found["sampled"])
    return StepInputs(
        rows=rows,
        decodes=decodes,
        tables=found["tables"],
        contexts=found["contexts"],
        starts=found["starts"],
        block_size=block_size,
        sampling=sampling(found, kind_of(how)),
    )


def sampling(columns: Mapping[str, Tensor], kind: Kind) -> Sampling:
    """Of columns on the device."""
    heat, top_p, seeds, steps = (columns[n] for n in ("temperature", "top_p", "seeds", "steps"))
    return Sampling(heat, top_p, seeds, steps, kind)


def kind_of(columns: Mapping[str, Column]) -> Kind:
    """Of `sampling_columns`: what no row asks for takes no pass over the logits."""
    heat, top_p = (np.asarray(columns[n], np.float32) for n in ("temperature", "top_p"))
    if not (heat > 0).any():
        return "greedy"
    return "top_p" if (top_p[heat > 0] < 1).any() else "temperature"


def sampling_columns(sequences: Many[Sequence]) -> dict[str, Column]:
    """One place for each sequence; a finished one, which runs as padding, is greedy."""
    params = [s.request.sampling for s in sequences]
    heat = [
        p.temperature if p.temperature > GREEDY and not s.finished else 0.0
        for p, s in zip(params, sequences, strict=True)
    ]
    seeds = [
        s.request_id if p.seed is None else p.seed % (1 << 63)
        for p, s in zip(params, sequences, strict=True)
    ]
    return {
        "temperature": np.array(heat, np.float32),
        "top_p": np.array([p.top_p for p in params], np.float32),
        "seeds": np.array(seeds, np.int64),
        "steps": np.array([s.output_tokens for s in sequences], np.int32),
    }


def block_tables(sequences: Many[Sequence], width: int | None = None) -> NDArray[np.int32]:
    """[sequences, width] block ids, zero behind the end of each; None: as wide as needed."""
    longest = max(len(s.block_table) for s in sequences)
    width = -(-longest // _WIDTH_BLOCKS) * _WIDTH_BLOCKS if width is None else width
    tables = np.zeros((len(sequences), width), np.int32)
    for row, sequence in zip(tables, sequences, strict=True):
        row[: len(sequence.block_table)] = sequence.block_table
    return tables


def _rows(chunks: list[Chunk], pad_token: int) -> dict[str, Column]:
    """Token, position and KV slot of each row; rows of padding hold the pad token."""
    tokens: list[int] = []
    slots, positions = [], []
    for chunk in chunks:
        sequence, stop = chunk.sequence, chunk.start + chunk.rows
        tokens += sequence.token_ids[chunk.start : chunk.end] + [pad_token] * chunk.padding
        assert sequence.slots is not None
        slots.append(sequence.slots[chunk.start : stop])
        positions.append(np.arange(chunk.start, stop, dtype=np.int32))
    return {
        "tokens": np.array(tokens, np.int64),
        "positions": np.concatenate(positions),
        "slots": np.concatenate(slots).astype(np.int32),
    }


def _sampled(
    batch: list[Chunk], ordered: list[Chunk], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The row of the last real token of each chunk that samples, in order of the batch."""
    last = {id(c): int(end) - c.padding - 1 for c, end in zip(ordered, ends, strict=True)}
    return np.array([last[id(c)] for c in batch if c.samples], np.int64)
