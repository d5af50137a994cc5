"""What runs in one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.decodes import Decodes, TokenIds
from engine.physics.cost import StepCost
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
        end = self.start + self.tokens
        self.emits = not self.padded and end == len(self.sequence.token_ids)

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

    # Of its real tokens each is exactly one of recomputed, prefill and decode.

    @property
    def recomputed_tokens(self) -> int:
        """Tokens that had been computed before the sequence was preempted."""
        until = self.sequence.recompute_until
        if self.padded or self.start >= until:
            return 0
        return min(self.end, until) - self.start

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens computed for the first time."""
        if self.padded:
            return 0
        sequence = self.sequence
        first = max(self.start, sequence.recompute_until)
        return max(0, min(self.end, sequence.prompt_tokens) - first)

    @property
    def decode_tokens(self) -> int:
        """Emitted tokens computed for the first time."""
        return 0 if self.padded else self.tokens - self.recomputed_tokens - self.prefill_tokens

    @property
    def phase(self) -> str:
        """As in telemetry.schema.SEQUENCE_PHASES: recompute if any of its tokens is."""
        if self.padded:
            return "padded"
        if self.start < self.sequence.recompute_until:
            return "recompute"
        return "prefill" if self.start < self.sequence.prompt_tokens else "decode"


class Preemption(NamedTuple):
    """A sequence pushed out, with what it held: blocks, and tokens computed."""

    sequence: Sequence
    blocks: int
    computed_tokens: int


@dataclass(slots=True)
class ScheduledBatch:
    """The plan of one step, in the order of its rows: `decodes`, then `others`.

    decodes: None where nobody decodes, and where a scheduler plans them one by one in `others`.
    limit_bound: what kept more from running; one of telemetry.schema.LIMITS.
    prefix_hit_tokens: found in the prefix cache by those admitted for the first time.
    """

    others: list[Chunk] = field(default_factory=list)
    decodes: Decodes | None = None
    limit_bound: str = "none"
    admitted: list[Sequence] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    prefix_hit_tokens: int = 0
    cost: StepCost | None = None  # kept by engine.step_record.step_cost
    _decode_chunks: list[Chunk] | None = None

    @property
    def chunks(self) -> list[Chunk]:
        """All of the plan, one by one: for those that cannot use columns."""
        if self.decodes is None:
            return self.others
        if self._decode_chunks is None:
            self._decode_chunks = [_decode_chunk(s, at) for s, at in self.decodes]
        return self._decode_chunks + self.others

    @property
    def num_decodes(self) -> int:
        """Rows of `decodes`."""
        return 0 if self.decodes is None else len(self.decodes)

    @property
    def num_chunks(self) -> int:
        return self.num_decodes + len(self.others)

    @property
    def rows(self) -> int:
        return self.num_decodes + sum(c.rows for c in self.others)

    @property
    def preempted(self) -> list[Sequence]:
        return [p.sequence for p in self.preemptions]


def _decode_chunk(sequence: Sequence, start: int) -> Chunk:
    chunk = Chunk(sequence, start, 1)
    chunk.emits = True  # also when asked after the step, when the sequence knows its next token
    return chunk


@dataclass(slots=True)
class StepOutput:
    """The next token of every chunk that samples, in order of the batch."""

    token_ids: TokenIds
