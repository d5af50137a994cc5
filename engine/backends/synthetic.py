"""What a modelled device answers: text that is made up, says so, and is the same every time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Items
from typing import Protocol
from zlib import crc32

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
        self._ids = [token for piece in pieces for token in piece]
        lengths = [len(piece) for piece in pieces]
        self._sentence_starts = [sum(lengths[:n]) for n in range(len(lengths))]
        self._starts: dict[int, int] = {}

    def next(self, sequence: Sequence) -> int:
        """The token that follows what the sequence has."""
        start = self._starts.get(sequence.request_id)
        if start is None:
            start = self._begin(sequence)
        return self._ids[(start + sequence.output_tokens) % len(self._ids)]

    def _begin(self, sequence: Sequence) -> int:
        """Answers begin at the sentence that the prompt decides."""
        starts = self._sentence_starts
        start = starts[_digest(sequence.request.prompt_token_ids) % len(starts)]
        self._starts[sequence.request_id] = start
        return start

    def forget(self, request_id: int) -> None:
        self._starts.pop(request_id, None)


def _digest(prompt: Items[int]) -> int:
    return crc32(array("q", prompt).tobytes())
