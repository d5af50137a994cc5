"""Predictions for people: recorded beside predicted, and a grid as a table with bars."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from app.replay.wording import FIGURES, change, label, model_lines, remarks, shown, value
from app.units import duration, three

_BAR = 16


def print_prediction(found: dict[str, Any]) -> None:
    """Recorded, predicted with its range, and the change."""
    predicted, console = found["predicted"], Console(soft_wrap=True)
    was, now = found["recorded_settings"], predicted["settings"]
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
        label(p["settings"]),
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
        lines.append(f"Best: {label(best['predicted']['settings'])}.")
        lines.append(f"By {found['best_by']}.")
    lines += [f"Left out: {reason}" for reason in found["skipped"]]
    return lines + (remarks(found, found["rows"][0]["predicted"]) if found["rows"] else [])
