"""What attention and linear layers of a step amount to: plain, latent (MLA), with windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.physics.model_spec import ModelSpec
from engine.physics.shapes import MLA, Window
from engine.physics.work import ChunkWork, StepWork, WorkSums, sum_windowed, sum_work


class Amounts(NamedTuple):
    """FLOPs of the layers, and positions times layers of the KV cache that are read."""

    linear_flops: int
    attention_flops: int
    layer_reads: int


NONE = Amounts(0, 0, 0)

StepAmounts = tuple[Amounts, Amounts, Amounts]
"""Of all rows that ran, of the padding among them, and of the recomputed ones."""


def plain_amounts(spec: ModelSpec, work: StepWork) -> StepAmounts:
    """Amounts of a step where every query attends to all before it, head by head."""
    ran, padding, again = work
    return (
        _plain(spec, ran),
        _plain(spec, padding) if padding.rows else NONE,
        _plain(spec, again) if again.rows else NONE,
    )


def _plain(spec: ModelSpec, sums: WorkSums) -> Amounts:
    return Amounts(
        2 * spec.active_linear_params * sums.rows,
        spec.attention_flops_per_position * sums.attended,
        spec.layers * sums.context,
    )


def variant_amounts(
    spec: ModelSpec, chunks: Iterable[ChunkWork], decode_starts: Sequence[int]
) -> tuple[StepWork, StepAmounts]:
    """Sums and amounts of a step of a model with MLA or windows. ValueError for any other."""
    given = list(chunks)
    work = sum_work(given, decode_starts)
    if spec.mla is not None:
        return work, _latent(spec, spec.mla, given, decode_starts)
    if spec.window is None:
        raise ValueError(f"{spec.name} has plain attention")
    seen = sum_windowed(given, decode_starts, spec.window.tokens)
    return work, _windowed(spec, spec.window, work, seen)


def _windowed(spec: ModelSpec, window: Window, full: StepWork, seen: StepWork) -> StepAmounts:
    """Some layers attend to everything and the others to what their window shows."""
    full_layers = spec.layers - window.layers
    flops = spec.attention_flops_per_position // spec.layers

    def amounts(whole: WorkSums, short: WorkSums) -> Amounts:
        attended = full_layers * whole.attended + window.layers * short.attended
        reads = full_layers * whole.context + window.layers * short.context
        return Amounts(2 * spec.active_linear_params * whole.rows, flops * attended, reads)

    return _three(amounts(a, b) for a, b in zip(full, seen, strict=True))


def _latent(
    spec: ModelSpec, mla: MLA, chunks: list[ChunkWork], decode_starts: Sequence[int]
) -> StepAmounts:
    """Single rows attend to the latents as they are cached; longer chunks expand them first.

    Absorbed (DeepSeek-V2, 2024, section 2.1.2): the expansion's weights act on query and output,
    once a row. Expanded: they act on every position of the context, so a chunk that is not the
    first pays for those before it too.
    """
    single = sum_work([c for c in chunks if _rows(c) == 1], decode_starts)
    longer = sum_work([c for c in chunks if _rows(c) > 1])
    linear, expansion = 2 * spec.active_linear_params, 2 * spec.expansion_params
    absorbed = spec.layers * mla.absorbed_flops(spec.heads)
    expanded = spec.layers * mla.expanded_flops(spec.heads)

    def amounts(one: WorkSums, many: WorkSums) -> Amounts:
        before = many.context - many.rows
        return Amounts(
            linear * (one.rows + many.rows) + expansion * before,
            absorbed * one.attended + expanded * many.attended,
            spec.layers * (one.context + many.context),
        )

    return _three(amounts(a, b) for a, b in zip(single, longer, strict=True))


def _rows(chunk: ChunkWork) -> int:
    return chunk.tokens + chunk.padded_tokens


def _three(amounts: Iterable[Amounts]) -> StepAmounts:
    ran, padding, again = amounts
    return ran, padding, again
