"""Predictions for people: recorded beside predicted, and a grid as a table with bars."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from app.replay.sweep import label
from app.units import UNKNOWN, duration, percent, three
from engine.replay.recording import Settings

FIGURES = (
    ("output tokens/s", "output_tokens_per_s", None),
    ("makespan", "makespan_s", None),
    ("TTFT P50", "ttft_s", "p50"),
    ("TTFT P99", "ttft_s", "p99"),
    ("TPOT P50", "tpot_s", "p50"),
    ("TPOT P99", "tpot_s", "p99"),
    ("ITL P50", "itl_s", "p50"),
    ("ITL P99", "itl_s", "p99"),
    ("worst gap", "itl_s", "max"),
    ("padded slot-steps", "padded_slot_fraction", None),
    ("preemptions", "preemptions", None),
)
"""What is compared: its name, its key in a summary, and the key inside that."""
_BAR = 16
FAR = 1.5  # a step with so many times the rows of any recorded one is told


def value(summary: dict[str, Any], key: str, inner: str | None) -> float | None:
    """One figure of a summary."""
    found: float | None = summary[key][inner] if inner else summary[key]
    return found


def shown(key: str, number: float | None) -> str:
    """A figure with its unit."""
    if number is None:
        return UNKNOWN
    if key.endswith("_s") and key != "output_tokens_per_s":
        return duration(number)
    return percent(number) if key.endswith("fraction") else three(number)


def print_prediction(found: dict[str, Any]) -> None:
    """Recorded, predicted with its range, and the change."""
    predicted, console = found["predicted"], Console(soft_wrap=True)
    was, now = (Settings(**s) for s in (found["recorded_settings"], predicted["settings"]))
    table = Table(title=f"run {found['run_id']}", title_justify="left")
    table.add_column("")
    for head in ("recorded", "predicted", "range", "change"):
        table.add_column(head, justify="right")
    for name, key, inner in FIGURES:
        table.add_row(name, *_cells(found["recorded"], predicted, key, inner))
    console.print(table)
    console.print(f"recorded:  {label(was)}\npredicted: {label(now)}", highlight=False)
    for line in (*remarks(found, predicted), *model_lines(found["model"])):
        console.print(f"- {line}", highlight=False)


def _cells(
    recorded: dict[str, Any], predicted: dict[str, Any], key: str, inner: str | None
) -> list[str]:
    before, after = value(recorded, key, inner), value(predicted, key, inner)
    low, high = (value(predicted[end], key, inner) for end in ("low", "high"))
    spread = f"{shown(key, low)} – {shown(key, high)}"
    return [shown(key, before), shown(key, after), spread, change(before, after)]


def change(before: float | None, after: float | None) -> str:
    """'+12%', or 'x 12' where it is more than threefold."""
    if not before or after is None:
        return UNKNOWN
    ratio = after / before
    return f"x {three(ratio)}" if ratio > 3 else f"{ratio - 1:+.0%}"


def remarks(found: dict[str, Any], predicted: dict[str, Any]) -> list[str]:
    """What a reader must know before believing a prediction."""
    lines = [
        f"The range is that of {predicted['draws']} replays, each at the pace of one stretch of "
        "the recording; how another day's machine differs is not in it."
    ]
    beyond = predicted["largest_step_over_recorded"]
    if beyond > FAR:
        lines.append(
            f"The largest step has {three(beyond)} times the rows of any recorded one: there the "
            "model is extrapolated."
        )
    if found["requests_left_out"]:
        lines.append(f"{found['requests_left_out']} requests without a token were left out.")
    return lines + (found["notes"] if predicted["settings"]["prefix_cache"] else [])


def model_lines(model: dict[str, Any]) -> list[str]:
    """The fit in words: how well it holds, phase by phase."""
    lines = []
    for phase, r in model["residuals"]["phases"].items():
        spread = f"{r['p5']:+.0%} to {r['p95']:+.0%}"
        lines.append(f"{phase}: {r['steps']:,} steps, 90% of them {spread} of the fitted time")
    low, high = model["residuals"]["pace"]
    lines.append(f"pace of the machine over the recording: {low:+.0%} to {high:+.0%}")
    return lines


def print_sweep(found: dict[str, Any]) -> None:
    """A table of points; bars are worst gaps on a log axis, ┃ is the target."""
    console, target = Console(soft_wrap=True), found["targets"]["itl_slo_s"]
    table = Table(title=f"run {found['run_id']}", title_justify="left", box=None)
    for head in ("", "tokens/s", "TTFT P99", "TPOT P99", "worst gap", "log axis", ""):
        table.add_column(head, justify="left" if head in ("", "log axis") else "right")
    gaps = [row["predicted"]["itl_s"]["max"] for row in found["rows"]]
    ends = _ends([g for g in (*gaps, target) if g])
    for row in found["rows"]:
        table.add_row(*_sweep_cells(row, row == found["best"], target, ends))
    console.print(table)
    for line in _sweep_lines(found):
        console.print(f"- {line}", highlight=False)


def _sweep_cells(
    row: dict[str, Any], is_best: bool, target: float | None, ends: tuple[float, float]
) -> list[str]:
    p = row["predicted"]
    mark = "best" if is_best else "" if row["meets_target"] else "misses"
    return [
        label(Settings(**p["settings"])),
        three(p["output_tokens_per_s"]),
        duration(p["ttft_s"]["p99"]),
        duration(p["tpot_s"]["p99"]),
        duration(p["itl_s"]["max"]),
        _bar(p["itl_s"]["max"], target, ends),
        mark,
    ]


def _ends(values: list[float]) -> tuple[float, float]:
    return (min(values) / 1.5, max(values)) if values else (1.0, 1.0)


def _bar(gap: float | None, target: float | None, ends: tuple[float, float]) -> str:
    if gap is None:
        return ""
    cells = ["█"] * _place(gap, ends)
    cells += [" "] * (_BAR - len(cells))
    if target is not None:
        cells[_place(target, ends) - 1] = "┃"
    return "".join(cells)


def _place(value_s: float, ends: tuple[float, float]) -> int:
    low, high = ends
    share = math.log(value_s / low) / (math.log(high / low) or 1.0)
    return max(1, min(_BAR, round(share * _BAR)))


def _sweep_lines(found: dict[str, Any]) -> list[str]:
    best, lines = found["best"], list[str]()
    if best is None:
        lines.append("No point meets the target: relax it, or give the grid other points.")
    else:
        lines.append(f"Best: {label(Settings(**best['predicted']['settings']))}.")
        lines.append(f"By {found['best_by']}.")
    lines += [f"Left out: {reason}" for reason in found["skipped"]]
    return lines + (remarks(found, found["rows"][0]["predicted"]) if found["rows"] else [])
