"""What ran in a step, summed over its chunks: rows, positions that they attend to and read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class ChunkWork(NamedTuple):
    """What one sequence ran in one step.

    tokens: real tokens, at positions start .. start + tokens - 1.
    padded_tokens: rows that ran as padding after them (static prefill), positions continuing.
    sampled: rows that the LM head ran for.
    padded: the whole chunk was padding (decode row of a finished sequence of a static cohort).
    recomputed: how many of the first tokens had been computed before a preemption took them.
    """

    tokens: int
    start: int
    padded_tokens: int = 0
    sampled: int = 0
    padded: bool = False
    recomputed: int = 0


class WorkSums(NamedTuple):
    """Sums over the chunks of a step: rows, attended positions, KV positions read, head rows."""

    rows: int
    attended: int
    context: int
    sampled: int


NOTHING = WorkSums(0, 0, 0, 0)

StepWork = tuple[WorkSums, WorkSums, WorkSums]
"""Sums over all rows that ran, over the padding among them, and over the recomputed ones."""


def attended_positions(start: int, rows: int) -> int:
    """Sum of p + 1 over the queries at positions start .. start + rows - 1."""
    return rows * start + rows * (rows + 1) // 2


def sum_work(chunks: Iterable[ChunkWork], decode_starts: Sequence[int] = ()) -> StepWork:
    """Sum a step; decode_starts stand for chunks of one sampled token at these positions.

    Runs inside every engine step, hence one loop of plain integers. A chunk that also has fresh
    tokens must read its context for them: then reading it is nobody's loss.
    """
    rows = sampled = len(decode_starts)
    attended = context = sum(decode_starts) + rows
    pad_rows = pad_attended = pad_context = pad_sampled = 0
    again_rows = again_attended = again_context = 0
    for tokens, start, padding, samples, padded, again in chunks:
        n = tokens + padding
        if not n:
            continue
        seen = n * start + n * (n + 1) // 2
        rows += n
        attended += seen
        context += start + n
        sampled += samples
        if padded:
            pad_rows += n
            pad_attended += seen
            pad_context += start + n
            pad_sampled += samples
        elif padding:
            pad_rows += padding
            pad_attended += seen - attended_positions(start, tokens)
            pad_context += padding
        if again:
            again_rows += again
            again_attended += attended_positions(start, again)
            again_context += start + again if again == tokens else 0
    return (
        WorkSums(rows, attended, context, sampled),
        WorkSums(pad_rows, pad_attended, pad_context, pad_sampled) if pad_rows else NOTHING,
        WorkSums(again_rows, again_attended, again_context, 0) if again_rows else NOTHING,
    )


def sum_windowed(
    chunks: Iterable[ChunkWork], decode_starts: Sequence[int], window: int
) -> StepWork:
    """As sum_work where a query sees at most `window` positions, its own among them."""
    most, rows = window - 1, len(decode_starts)
    seen = rows + sum(min(start, most) for start in decode_starts)
    ran, padding, again = WorkSums(rows, seen, seen, rows), NOTHING, NOTHING
    for tokens, start, padded_tokens, samples, padded, recomputed in chunks:
        whole = _windowed(start, tokens + padded_tokens, samples, most)
        ran = _plus(ran, whole)
        if padded:
            padding = _plus(padding, whole)
        elif padded_tokens:
            padding = _plus(padding, _minus(whole, _windowed(start, tokens, samples, most)))
        if recomputed:
            real = _windowed(start, tokens, 0, most)
            fresh = _windowed(start + recomputed, tokens - recomputed, 0, most)
            again = _plus(again, _minus(real, fresh))
    return ran, padding, again


def _windowed(start: int, rows: int, sampled: int, most: int) -> WorkSums:
    """One run of rows of which each sees itself and at most `most` positions before it."""
    if not rows:
        return NOTHING
    short = min(rows, max(0, most - start))  # these see everything before them
    attended = attended_positions(start, short) + (rows - short) * (most + 1)
    return WorkSums(rows, attended, rows + min(start, most), sampled)


def _plus(a: WorkSums, b: WorkSums) -> WorkSums:
    return WorkSums(*(x + y for x, y in zip(a, b, strict=True)))


def _minus(a: WorkSums, b: WorkSums) -> WorkSums:
    return WorkSums(*(x - y for x, y in zip(a, b, strict=True)))
