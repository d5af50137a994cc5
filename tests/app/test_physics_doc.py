"""docs/physics.md: the worked cases really come out of the command."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.app.asking import found

DOC = (Path(__file__).resolve().parents[2] / "docs" / "physics.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(--[^`]+)` \| (\S+) \| (\S+) \|$", DOC, re.MULTILINE)


def value(answer: dict[str, Any], path: str) -> Any:
    return reduce(lambda part, key: part[key], path.split("."), answer)


@pytest.mark.parametrize(("line", "path", "stated"), ROWS)
def test_a_worked_case(line: str, path: str, stated: str) -> None:
    got = value(found(*line.split()), path)
    if stated == "null":
        assert got is None
    else:
        assert float(f"{got:.3g}") == float(f"{float(stated):.3g}")


def test_all_rows_are_read() -> None:
    table = DOC.partition("## Worked cases")[2].partition("`golden/physics.json`")[0]
    assert len(ROWS) == table.count("\n| `--") > 15


def test_the_series_of_the_book() -> None:
    rows = {
        name: [float(cell) for cell in cells.split("|")]
        for name, cells in re.findall(r"^\| (batch|here, ms) \| (.+) \|$", DOC, re.MULTILINE)
    }
    line = "--model llama-2-13b --device tpu-v5e --tensor-parallel 8 --context 8192"
    how = "--composition additive-kv --link-bandwidth-gb 1e6"
    for batch, stated in zip(rows["batch"], rows["here, ms"], strict=True):
        answer = found(*line.split(), *how.split(), "--batch", int(batch))
        assert answer["t_step_s"] * 1e3 == pytest.approx(stated, abs=0.006)
