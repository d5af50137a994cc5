"""Every case of `stepscope kernels check` on the device, each run twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernels.checking import pool
from tests.gpu.measure import Bench
from tests.gpu.sections import Row

_REHEARSED = "rms_norm"  # the interpreter's full run is a test of its own


def rows(bench: Bench) -> Iterator[Row]:
    def choose(items: list[dict[str, Any]]) -> list[int]:
        return [
            i for i, item in enumerate(items) if not bench.rehearsal or item["op"] == _REHEARSED
        ]

    yield from pool.run(pool.command("check"), choose).rows
