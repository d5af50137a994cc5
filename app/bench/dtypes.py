"""The dtypes beside each other: quality against fp32, the linear layers alone, and whole steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from app.bench.context import CONTEXT, STEPS, Bench, Samples, cleanliness, spread_row
from app.bench.measures import vocab
from app.bench.side import Side
from app.bench.stats import pair_ratios
from engine.errors import UserError
from engine.workloads.prompts import FOLDER

Row = dict[str, Any]

REFERENCE, BASELINE = "fp32", "bf16"  # of quality, and of speed
TEXT = FOLDER / "05_essays.txt"
PIECE_TOKENS = 320
LINEAR_CALLS = 20


def compare_dtypes(
    bench: Bench,
    start: Callable[[str], AbstractContextManager[Side]],
    dtypes: Sequence[str],
    folder: Path,
    *,
    started: Callable[[Side], None],
    skip_missing: bool,
    parts: Sequence[str],
) -> dict[str, list[Row]]:
    """start: our side of a dtype; all of them stay open, so that they can take turns.

    skip_missing: a dtype that this machine does not run is left out, and `left_out` says why;
    else UserError.
    """
    left_out: list[Row] = []
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for dtype in dtypes:
            bench.say(f"starting stepscope in {dtype}")
            try:
                sides[dtype] = stack.enter_context(start(dtype))
            except UserError as error:
                if not skip_missing:
                    raise
                left_out.append({"dtype": dtype, "why": str(error)})
            else:
                started(sides[dtype])
        found: dict[str, list[Row]] = {"left_out": left_out}
        if "quality" in parts and REFERENCE in sides:
            found["quality"] = _quality(bench, sides, folder / "reference.npy")
        if "linears" in parts:
            found["linears"] = _linears(bench, sides)
        return found


def _quality(bench: Bench, sides: dict[str, Side], reference: Path) -> list[Row]:
    rows = []
    text = TEXT.read_text(encoding="utf-8")
    for dtype in sorted(sides, key=lambda name: name != REFERENCE):
        bench.say(f"{dtype}: quality")
        length = min(PIECE_TOKENS, int(sides[dtype].facts["max_context"]))
        write = dtype == REFERENCE
        found = sides[dtype].ask(
            "quality", text=text, length=length, reference=str(reference), write=write
        )
        rows.append({"dtype": dtype, "text": TEXT.name, **found})
    base = rows[0]["perplexity"]
    return [{**row, "perplexity_ratio": row["perplexity"] / base} for row in rows]


def _linears(bench: Bench, sides: dict[str, Side]) -> list[Row]:
    alone = {dtype: Samples() for dtype in sides}
    whole = {dtype: Samples() for dtype in sides}
    for _ in range(1 + bench.repeats):  # the first warms
        for dtype, side in sides.items():
            bench.say(f"{dtype}: linear layers and whole steps at batch 1")
            prompts = bench.prompts(vocab(side), CONTEXT)
            alone[dtype].ask(bench, side, "linears", prompt=prompts[0], calls=LINEAR_CALLS)
            whole[dtype].ask(bench, side, "decode", prompts=prompts, steps=STEPS)
    for samples in (*alone.values(), *whole.values()):
        samples.answers.pop(0)
    return [_linear_row(dtype, alone, whole) for dtype in sides]


def _linear_row(dtype: str, alone: dict[str, Samples], whole: dict[str, Samples]) -> Row:
    return {
        "dtype": dtype,
        **spread_row("time_s", alone[dtype].spread("time_s")),
        **_speedup("linears", alone, dtype, "time_s"),
        **spread_row("step_s", whole[dtype].spread("step_s")),
        **_speedup("step", whole, dtype, "step_s"),
        **cleanliness(alone[dtype], whole[dtype]),
    }


def _speedup(name: str, samples: dict[str, Samples], dtype: str, key: str) -> Row:
    """How many times faster than the baseline; None without one."""
    if BASELINE not in samples:
        return {f"{name}_speedup": None}
    ratio = pair_ratios(samples[BASELINE].values(key), samples[dtype].values(key))
    return spread_row(f"{name}_speedup", ratio)
