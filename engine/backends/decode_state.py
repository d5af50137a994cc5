"""Decodes that stay on the device: a step leaves there what the next one reads.

While the same sequences decode, the next step's tokens are those just sampled, its positions are
one higher, and its block tables are the same but for a new block now and then. So the device makes
the next step ready behind the one that runs, and the host only checks that this is what the
scheduler then asks for. Buffers never move, so a CUDA graph can read them.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.backends.device_copy import Upload
from engine.backends.triton_inputs import (
    Sampling,
    block_tables,
    kind_of,
    sampling,
    sampling_columns,
)
from engine.backends.triton_model import Rows
from engine.batch import ScheduledBatch
from engine.decodes import Members
from engine.sequence import Sequence
from kernels.attention.triton_impl import paged_decode
from kernels.sampling.tiles import Kind

_INT32 = ("positions", "contexts", "steps")
_FLOAT32 = ("temperature", "top_p")
_INT64 = ("tokens", "seeds")


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """A step of `count` decodes that the state holds, run as `size` rows; those between attend to
    nothing and write nothing."""

    count: int
    size: int


class DecodeState:
    """Columns [most] of the sequences that decode, and their block tables [most, width].

    width: blocks of the longest context that the model and the cache allow.
    """

    def __init__(self, most: int, width: int, block_size: int, device: torch.device) -> None:
        self.most, self._block_size = most, block_size
        kinds = ((_INT32, torch.int32), (_FLOAT32, torch.float32), (_INT64, torch.int64))
        self.columns = {
            name: torch.zeros(most, dtype=dtype, device=device)
            for names, dtype in kinds
            for name in names
        }
        self.tables = torch.zeros(most, width, dtype=torch.int32, device=device)
        self._members: Members | None = None
        self._held: list[int] = []  # blocks of each member's table that the device has
        self._next: NDArray[np.int64] = np.zeros(0, np.int64)
        self._kind: Kind = "top_p"

    # --- from the host ---

    def takes(self, batch: ScheduledBatch) -> bool:
        """Whether the batch is nothing but decodes that fit."""
        decodes = batch.decodes
        fits = decodes is not None and len(decodes) <= self.most
        return fits and not batch.others

    def prepare(self, batch: ScheduledBatch, size: int, upload: Upload) -> DecodeInputs:
        """Make the state that of a batch which it takes, to run as `size` rows."""
        decodes = batch.decodes
        assert decodes is not None
        sequences = decodes.members.sequences
        expected = decodes.members is self._members and np.array_equal(decodes.start, self._next)
        if not expected:
            self._load(sequences, decodes.start, upload)
        elif self._held != (lengths := [len(s.block_table) for s in sequences]):
            self._grow(sequences, lengths, upload)
        self._members, self._next = decodes.members, decodes.start + 1
        return DecodeInputs(len(decodes), size)

    def forget(self) -> None:
        """The next step is loaded whole."""
        self._members = None

    def _load(self, sequences: Many[Sequence], start: NDArray[np.int64], upload: Upload) -> None:
        count = len(sequences)
        tables = block_tables(sequences)
        tokens = [s.token_ids[at] for s, at in zip(sequences, start.tolist(), strict=True)]
        how = sampling_columns(sequences)
        found = upload(
            tokens=np.array(tokens, np.int64),
            positions=start.astype(np.int32),
            contexts=(start + 1).astype(np.int32),
            tables=tables,
            **how,
        )
        self._kind = kind_of(how)
        width = min(tables.shape[1], self.tables.shape[1])
        self.tables[:count, :width].copy_(found["tables"][:, :width])
        for name, column in self.columns.items():
            column[:count].copy_(found[name])
            column[count:].zero_()  # a context of none: a row that does nothing
        self._held = [len(s.block_table) for s in sequences]

    def _grow(self, sequences: Many[Sequence], lengths: list[int], upload: Upload) -> None:
        """Write the blocks that tables have gained."""
        places = [
            (row, at, sequences[row].block_table[at])
            for row, (held, length) in enumerate(zip(self._held, lengths, strict=True))
            for at in range(held, length)
        ]
        rows, columns, blocks = np.array(places, np.int64).T
        found = upload(rows=rows, columns=columns, blocks=blocks.astype(np.int32))
        self.tables.index_put_((found["rows"], found["columns"]), found["blocks"])
        self._held = lengths

    # --- on the device ---

    def rows(self, size: int) -> Rows:
        """The first `size` rows, with the slots that their K and V go to."""
        positions, contexts = (self.columns[n][:size] for n in ("positions", "contexts"))
        block = (positions // self._block_size).long()[:, None]
        first = self.tables[:size].gather(1, block)[:, 0] * self._block_size
        slots = torch.where(contexts > 0, first + positions % self._block_size, -1)
        return Rows(self.columns["tokens"][:size], positions, slots.to(torch.int32))

    def attend(self, size: int, q: Tensor, cache: Tensor) -> Tensor:
        """As engine.backends.triton_model.Attention."""
        tables, contexts = self.tables[:size], self.columns["contexts"][:size]
        return paged_decode(q, cache, tables, contexts, self._block_size)

    def sampling(self, size: int) -> Sampling:
        return sampling({name: c[:size] for name, c in self.columns.items()}, self._kind)

    def advance(self, size: int, tokens: Tensor) -> None:
        """Make the next step ready. tokens: int64 [size], just sampled."""
        contexts = self.columns["contexts"][:size]
        lives = (contexts > 0).to(torch.int32)
        self.columns["tokens"][:size].copy_(tokens)
        for name in ("positions", "steps"):
            self.columns[name][:size].add_(lives)
        contexts.add_(lives)
