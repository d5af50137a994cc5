"""Sequences that decode side by side, as columns.

A step of many slots is mostly decodes: one token each of sequences that were there before. Their
fixed facts are kept as columns until somebody joins or leaves, so that a step touches few objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from collections.abc import Sequence as Items

import numpy as np
from numpy.typing import NDArray

from engine.sequence import Sequence

Ints = NDArray[np.int64]
TokenIds = Items[int] | Ints


def int_column(values: TokenIds) -> array[int]:
    """64-bit integers in one piece: cheap to send and to copy, plain ints when iterated."""
    return array("q", values.tobytes() if isinstance(values, np.ndarray) else values)


class Members:
    """Who decodes together, in order of arrival, and what does not change about them.

    Columns [members]: request_ids, slots, prompt_tokens; last_starts, the position whose step
    emits the last token that was asked for; ones, phases. watched: places of those that a token or
    a text may end sooner.
    """

    __slots__ = (
        *("last_starts", "ones", "phases", "prompt_tokens", "request_ids", "sequences", "slots"),
        "watched",
    )

    def __init__(self, sequences: list[Sequence]) -> None:
        count = len(sequences)
        self.sequences = sequences
        self.request_ids = np.array([s.request_id for s in sequences], np.int64)
        self.slots = np.array([s.slot for s in sequences], np.int64)
        self.ones, self.phases = np.ones(count, np.int64), ["decode"] * count
        self.prompt_tokens = np.array([s.prompt_tokens for s in sequences], np.int64)
        self.last_starts = np.array([s.max_tokens_total - 2 for s in sequences], np.int64)
        self.watched = [i for i, s in enumerate(sequences) if s.may_stop]

    def __len__(self) -> int:
        return len(self.sequences)


class Decodes:
    """One step of members: each runs its one uncomputed token and emits the next.

    starts: its position, which is the context already computed. [members], as list and array.
    """

    __slots__ = ("members", "start", "starts")

    def __init__(self, members: Members, starts: list[int]) -> None:
        self.members, self.starts = members, starts
        self.start: Ints = np.array(starts, np.int64)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[Sequence, int]]:
        return zip(self.members.sequences, self.starts, strict=True)

    @property
    def contexts(self) -> Ints:
        """Context after the step, [members]."""
        return self.start + 1

    @property
    def context_sum(self) -> int:
        """Of all contexts after the step."""
        return sum(self.starts) + len(self.starts)

    @property
    def indexes(self) -> Ints:
        """Place in its output of the token that each emits, [members]."""
        return self.start + 1 - self.members.prompt_tokens

    def at_length(self) -> list[int]:
        """Places of those that have all they asked for after the step."""
        places: list[int] = np.flatnonzero(self.start >= self.members.last_starts).tolist()
        return places
