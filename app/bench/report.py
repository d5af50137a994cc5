"""The bench's result for people: one table a part, and what to make of it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from app.bench.cells import Row
from app.bench.tables import PARTS, PEER_PARTS, WORDS, Column

WIDTH = 160


def print_report(result: Row, console: Console | None = None) -> None:
    """All parts that were measured."""
    out = console or _console()
    if "machine" in result:
        out.print(_machine(result["machine"]))
    for title, key, columns in PARTS:
        if result.get(key):
            out.print(_table(title, columns, result[key]))
    for peer, dtypes in result.get("against", {}).items():
        for dtype, found in dtypes.items():
            _print_peer(out, f"{peer} {found['version']}, {dtype}", found)
    for row in result.get("left_out", []):
        out.print(f"left out: {row['why']}")
    out.print(_verdict(result))


def _console() -> Console:
    """Wide where nobody's window limits it."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def _machine(facts: Row) -> str:
    peaks = ", ".join(
        f"{dtype} {peak['flops'] / 1e9:.4g} GFLOP/s and {peak['bandwidth'] / 1e9:.3g} GB/s"
        for dtype, peak in facts["peaks"].items()
    )
    return (
        f"{facts['device']}, {facts['threads']} threads on {facts['cores']} cores, "
        f"{facts['memory_bytes'] / 2**30:.0f} GiB, torch {facts['torch']}, {facts['huge_pages']}, "
        f"{facts['kernels']} kernels\n"
        f"{facts['model']}; peaks measured: {peaks}"
    )


def _verdict(result: Row) -> str:
    idle, foreign = result["idle"], result.get("machine", {}).get("calibration_foreign", 0)
    lines = [f"others used up to {idle['worst']:.0%} of the CPU (before: {idle['before']:.0%})"]
    if result["clean"]:
        lines[0] += ": the figures count."
    else:
        lines[0] += (
            f", more than {idle['allowed']:.0%}: rows marked 'busy' do not count. "
            "Run it again on an idle machine."
        )
    if foreign > idle["allowed"]:
        lines.append(
            f"others used {foreign:.0%} while the peaks were measured: MBU and MFU do not count "
            "before `stepscope calibrate --force`."
        )
    return "\n".join(lines)


def _print_peer(out: Console, title: str, found: Row) -> None:
    out.print(f"beside {title}: {found['settings']}")
    for part, columns in PEER_PARTS.items():
        if found.get(part):
            out.print(_table(f"{part} beside {title}", columns, found[part]))


def _table(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for name, _ in columns:
        table.add_column(name, justify="left" if name in WORDS else "right")
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns))
    return table
