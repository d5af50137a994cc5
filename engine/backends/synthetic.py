"""What a modelled device answers: text that is made up, says so, and is the same every time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Items
from typing import Protocol
from zlib import crc32

import numpy as np

from engine.batch import ScheduledBatch
from engine.decodes import Decodes, Ints, Members
from engine.sequence import Sequence

SENTENCES = (
    "This text is synthetic.",
    "A modelled device computes times, not words, so no model has read the question.",
    "What is real here is the order of things: which request runs, who waits, and for how long.",
    "Each of these tokens came out of one step of the scheduler.",
    "The step took as long as the cost model says that it takes on the device in the badge.",
    "Its weights were counted once, its cache was counted for every sequence, and so was the math.",
    "Whatever the step needed most of decided how long it took.",
    "A longer prompt would have come later, and a fuller batch a little slower.",
    "The same prompt gets the same tokens again, whatever runs beside it.",
    "So two schedules can be compared answer by answer, and only their times differ.",
    "For words that a model chose, start a run on the CPU.",
)


class Encoder(Protocol):
    """Anything that turns text into token ids."""

    def encode(self, text: str) -> list[int]: ...


class SyntheticTokens:
    """Token k of an answer is a function of its prompt and k alone; never an end-of-sequence."""

    def __init__(self, encoder: Encoder) -> None:
        pieces = [encoder.encode(f" {sentence}") for sentence in SENTENCES]
        self._ids: Ints = np.array([token for piece in pieces for token in piece], np.int64)
        lengths = [len(piece) for piece in pieces]
        self._sentence_starts = [sum(lengths[:n]) for n in range(len(lengths))]
        self._starts: dict[int, int] = {}
        self._members: Members | None = None  # whose starts are kept as a column
        self._column: Ints = np.zeros(0, np.int64)

    def of(self, batch: ScheduledBatch) -> Ints:
        """The next token of every chunk that samples, in order of the batch."""
        others = [self._following(c.sequence) for c in batch.others if c.samples]
        at = np.array(others, np.int64)
        if batch.decodes is not None:
            at = np.concatenate([self._of_decodes(batch.decodes), at])
        return self._ids[at % len(self._ids)]

    def _of_decodes(self, decodes: Decodes) -> Ints:
        """Places in the text, [members]; runs in every step, hence on columns."""
        if decodes.members is not self._members:
            self._members = decodes.members
            starts = [self._start(sequence) for sequence in decodes.members.sequences]
            self._column = np.array(starts, np.int64)
        return self._column + decodes.indexes

    def _following(self, sequence: Sequence) -> int:
        return self._start(sequence) + sequence.output_tokens

    def _start(self, sequence: Sequence) -> int:
        """Answers begin at the sentence that the prompt decides."""
        start = self._starts.get(sequence.request_id)
        if start is None:
            starts = self._sentence_starts
            start = starts[_digest(sequence.request.prompt_token_ids) % len(starts)]
            self._starts[sequence.request_id] = start
        return start

    def forget(self, request_id: int) -> None:
        self._starts.pop(request_id, None)


def _digest(prompt: Items[int]) -> int:
    return crc32(array("q", prompt).tobytes())
