"""CUDA graphs of a decode step: one launch instead of some hundred.

At batch 1 a layer of an 8B model takes tens of microseconds on a GPU, about what its ten launches
cost the host. A graph reads and writes the same addresses every time, so its rows are a fixed
number: a batch runs on the smallest graph that holds it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")

_SMALL = (1, 2, 4, 8)
_STEP = 16  # above them: rows that a matmul's tile computes in any case


def graph_sizes(most: int, few_rows: int | None = None) -> list[int]:
    """1, 2, 4, 8, 16, 32, 48, … and `most`. few_rows: rows up to which quantised weights are read,
    a size of its own, so that no batch is padded beyond it."""
    usual = {*_SMALL, *range(_STEP, most, _STEP), few_rows or 1}
    return [*sorted(size for size in usual if size < most), most]


class DecodeGraphs(Generic[T]):
    """step(size) recorded for every size. Call it like the step."""

    def __init__(
        self,
        step: Callable[[int], T],
        sizes: list[int],
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        """The state that `step` reads must make it harmless: its rows attend to nothing."""
        self._sizes = sizes
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, T]] = {}
        pool: Any = None
        for done, size in enumerate(reversed(sizes)):  # the largest first: others fit its memory
            graph, results = _record(step, size, pool)
            pool = graph.pool()
            self._recorded[size] = graph, results
            progress((done + 1) / len(sizes))

    def size(self, count: int) -> int:
        """Rows that `count` decodes run as. count is at most the largest size."""
        return self._sizes[bisect_left(self._sizes, count)]

    def __call__(self, size: int) -> T:
        """Results lie in the graph's own memory: gone with the next call."""
        graph, results = self._recorded[size]
        graph.replay()
        return results


@torch.inference_mode()
def _record(step: Callable[[int], T], size: int, pool: Any) -> tuple[torch.cuda.CUDAGraph, T]:
    beside: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        step(size)  # compiles what is new; a capture cannot
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        results = step(size)
    return graph, results
