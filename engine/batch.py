"""What runs in one step."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.sequence import Sequence


@dataclass(slots=True)
class Chunk:
    """The tokens one sequence gets in one step.

    tokens known tokens from position `start` on; then `padding` rows that run only because the
    batch is padded. `padded`: the sequence has finished and runs as padding of a static cohort.
    `emits`: its last row yields the sequence's next token.
    """

    sequence: Sequence
    start: int
    tokens: int
    padding: int = 0
    padded: bool = False
    emits: bool = field(init=False)

    def __post_init__(self) -> None:
        self.emits = not self.padded and self.end == len(self.sequence.token_ids)

    @property
    def rows(self) -> int:
        return self.tokens + self.padding

    @property
    def end(self) -> int:
        """Context after the step."""
        return self.start + self.tokens

    @property
    def samples(self) -> bool:
        """Whether the LM head runs for its last row; for a padded row it does, for nothing."""
        return self.emits or self.padded


@dataclass(slots=True)
class ScheduledBatch:
    """The plan of one step, in the order of its rows."""

    chunks: list[Chunk] = field(default_factory=list)
    limit_bound: str = "none"
    admitted: list[Sequence] = field(default_factory=list)


@dataclass(slots=True)
class StepOutput:
    """The next token of every chunk that samples, in order of the batch."""

    token_ids: list[int]
