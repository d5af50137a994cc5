"""Several what-ifs beside each other, and a grid as a table with a chart in it."""

from __future__ import annotations

import math
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
    times_s = [row["t_step_s"] for row in found["rows"]]
    ends = _ends([*times_s, *([target] if target else [])]) if times_s else (0.0, 1.0)
    for rows, deployment in zip(_by_deployment(found), found["deployments"], strict=True):
        console.print(_sweep_table(rows, deployment, found, ends))
    _say(console, found)


def _by_deployment(found: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The rows of each deployment; every one has as many, in the order of `deployments`."""
    rows, each = found["rows"], len(found["rows"]) // max(1, len(found["deployments"]))
    return [rows[i : i + each] for i in range(0, len(rows), each)] if rows else []


def _sweep_table(
    rows: list[dict[str, Any]],
    deployment: dict[str, Any],
    found: dict[str, Any],
    ends: tuple[float, float],
) -> Table:
    name = f"{deployment['devices']} x {deployment['device']} in {deployment['dtype']}"
    memory = si(rows[0]["memory_bytes"], "B")
    most = count(deployment["max_batch"]), deployment["max_batch_limit"] or "nothing limits it"
    title = f"{name}, {memory}; largest batch {most[0]} ({most[1]})"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("batch", "step", "log axis", "tokens/s", "a device", "needs", ""):
        left = column in ("log axis", "")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
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
            f"{duration(best['t_step_s'])} a step.",
            highlight=False,
        )
    for reason in found["skipped"]:
        console.print(f"- Left out: {reason}", highlight=False)
