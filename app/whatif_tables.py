"""Several what-ifs beside each other, and a grid as a table with a chart in it."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from app.units import UNKNOWN, count, duration, si, three

_BAR = 20


def print_side_by_side(answers: list[dict[str, Any]]) -> None:
    """One column an answer, then what each says about memory."""
    console = Console(soft_wrap=True)
    first = answers[0]
    table = Table(title=f"{first['title']}, batch {first['batch']:,}, context {first['context']:,}")
    table.add_column("")
    for a in answers:
        n = f"{a['devices']} x " if a["devices"] > 1 else ""
        table.add_column(f"{n}{a['device']}\n{a['dtype']}", justify="right")
    for name, cells in _rows(answers):
        table.add_row(name, *cells)
    console.print(table)
    for a in answers:
        if not a["fits"]:
            console.print(f"- {a['sentences']['fit']}", highlight=False)


def _rows(answers: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    return [
        ("reading", [duration(a["t_memory_s"]) for a in answers]),
        ("computing", [duration(a["t_compute_s"]) for a in answers]),
        ("step", [duration(a["t_step_s"]) for a in answers]),
        ("bound", [a["bound"] for a in answers]),
        ("tokens/s", [three(a["tokens_per_s"]) for a in answers]),
        ("one stream", [three(a["single_stream_tokens_per_s"]) for a in answers]),
        ("ridge", [three(a["ridge"]) for a in answers]),
        ("B*", [three(a["b_star"]) for a in answers]),
        ("B* with KV", [three(a["b_star_with_kv"]) for a in answers]),
        ("weights", [si(a["weight_bytes"], "B") for a in answers]),
        ("KV cache", [si(a["kv_bytes"], "B") for a in answers]),
        ("memory", [si(a["memory"]["memory_bytes"], "B") for a in answers]),
        ("fits", ["yes" if a["fits"] else "no" for a in answers]),
        ("max batch", [count(a["max_batch"]) for a in answers]),
        ("limited by", [a["max_batch_limit"] or UNKNOWN for a in answers]),
    ]


def print_sweep(found: dict[str, Any]) -> None:
    """A table a deployment. Bars are step times on one log axis, ┃ is the target."""
    console = Console(soft_wrap=True)
    target = found["tpot_slo_s"]
    goal = f", within {duration(target)} a token" if target else ""
    console.print(
        f"{found['model']}, {found['phase']}, context {found['context']:,}{goal}", highlight=False
    )
    ends = _ends([row["t_step_s"] for row in found["rows"]] + ([target] if target else []))
    for rows in _by_deployment(found["rows"]):
        console.print(_sweep_table(rows, found, ends))
    _say(console, found)


def _by_deployment(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups = groupby(rows, lambda row: (row["device"], row["dtype"], row["tensor_parallel"]))
    return [list(group) for _, group in groups]


def _sweep_table(
    rows: list[dict[str, Any]], found: dict[str, Any], ends: tuple[float, float]
) -> Table:
    first = rows[0]
    name = f"{first['devices']} x {first['device']} in {first['dtype']}"
    memory = si(first["memory_bytes"], "B")
    table = Table(title=f"{name}, {memory}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("batch", "step", "log axis", "tokens/s", "a device", "needs", ""):
        side = "left" if column in ("log axis", "") else "right"
        table.add_column(column, justify=side, no_wrap=True)
    for row in rows:
        best = row == found["best"]
        table.add_row(*_cells(row, ends, found["tpot_slo_s"], best), style="bold" if best else None)
    return table


def _cells(
    row: dict[str, Any], ends: tuple[float, float], target: float | None, best: bool
) -> list[str]:
    return [
        f"{row['batch']:,}",
        duration(row["t_step_s"]),
        _bar(row["t_step_s"], ends, target),
        three(row["tokens_per_s"]),
        three(row["tokens_per_s_per_device"]),
        si(row["needed_bytes"], "B"),
        "◀ best" if best else _verdict(row),
    ]


def _verdict(row: dict[str, Any]) -> str:
    if row["meets_target"]:
        return "meets"
    return "too slow" if row["fits"] else "too big"


def _ends(times_s: list[float]) -> tuple[float, float]:
    low, high = math.log(min(times_s)), math.log(max(times_s))
    return low, max(high, low + 1e-9)


def _bar(value: float, ends: tuple[float, float], target: float | None) -> str:
    """A bar of at least one cell, and the target's mark where it lies."""
    cells = ["█"] * (_place(value, ends) + 1)
    cells += [" "] * (_BAR - len(cells))
    if target:
        cells[_place(target, ends)] = "┃"
    return "".join(cells)


def _place(value: float, ends: tuple[float, float]) -> int:
    low, high = ends
    return round((math.log(value) - low) / (high - low) * (_BAR - 1))


def _say(console: Console, found: dict[str, Any]) -> None:
    best = found["best"]
    if best is None:
        console.print("- No point fits and meets the target.", highlight=False)
    else:
        console.print(
            f"- Best ({found['best_by']}): {best['devices']} x {best['device']} in {best['dtype']}"
            f" at batch {best['batch']:,}: {three(best['tokens_per_s'])} tokens/s, "
            f"{duration(best['t_step_s'])} a token.",
            highlight=False,
        )
    for reason in found["skipped"]:
        console.print(f"- Left out: {reason}", highlight=False)
