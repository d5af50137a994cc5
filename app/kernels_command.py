"""`stepscope kernels check` and `stepscope kernels aot`: are the kernels right, and how do they
compile. The work is done by processes of its own (`kernels.checking.pool`)."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from app.errors import EngineFailedError
from app.options import Json
from engine.errors import UserError, unknown
from kernels.checking import pool

Row = dict[str, Any]

_FILE_COLUMNS = 130  # where nobody's window is the limit

kernels_app = typer.Typer(
    name="kernels",
    help="Triton kernels against their references, and compiled for GPUs that are not here.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@kernels_app.command(epilog="Example: stepscope kernels check --op paged_decode --json")
def check(
    op: Annotated[
        list[str] | None, typer.Option(help="A launcher, such as rms_norm; again for more.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Every op, dtype and odd shape against a float64 reference, on the GPU or interpreted."""
    wanted = _named(op)
    found = _run("check", lambda items: _choose(items, "op", wanted))
    return _report(found, "ops", as_json, _check_table)


@kernels_app.command(epilog="Example: stepscope kernels aot --arch sm_80,sm_90,sm_100,gfx942")
def aot(
    arch: Annotated[
        list[str] | None,
        typer.Option(help="sm_80, sm_90, sm_100, gfx942; again or by commas for more; all."),
    ] = None,
    op: Annotated[list[str] | None, typer.Option(help="A launcher; again for more.")] = None,
    as_json: Json = False,
) -> int:
    """Compile every kernel without a GPU: registers, spills, shared memory, instructions."""
    archs, ops = _named(arch), _named(op)

    def choose(items: list[Row]) -> list[int]:
        of_op = set(_choose(items, "op", ops))
        return [i for i in _choose(items, "arch", archs) if i in of_op]

    found = _run("aot", choose)
    return _report(found, "kernels", as_json, _aot_table)


def _named(given: list[str] | None) -> list[str]:
    """Names, given again or by commas; none: all."""
    return [name.strip() for part in given or [] for name in part.split(",") if name.strip()]


def _choose(items: list[Row], key: str, wanted: list[str]) -> list[int]:
    """Indexes of the items that are asked for. Raises UserError for a name that none has."""
    known = list(dict.fromkeys(item[key] for item in items))
    for name in wanted:
        if name not in known:
            raise unknown(key, name, known)
    return [i for i, item in enumerate(items) if not wanted or item[key] in wanted]


def _run(kind: str, choose: Callable[[list[Row]], list[int]]) -> pool.Found:
    if importlib.util.find_spec("triton") is None:
        raise UserError(
            "triton is not installed, and the kernels are written in it: it comes with Stepscope "
            "on Linux, run pip install triton"
        )
    try:
        return pool.run(pool.command(kind), choose)
    except pool.WorkerError as error:
        raise EngineFailedError(f"the kernels cannot be loaded: {error}") from None


def _report(found: pool.Found, name: str, as_json: bool, table: Callable[[Row], Table]) -> int:
    """Print; the exit code."""
    passed = all(row["passed"] for row in found.rows)
    rest = {key: value for key, value in found.header.items() if key not in ("items", "blank")}
    result = {**rest, name: found.rows, "passed": passed}
    if as_json:
        print(json.dumps(result))
    else:
        _print(result, name, table(result))
    return 0 if passed else 1


def _print(result: Row, name: str, table: Table) -> None:
    console, rows = Console(), result[name]
    if not console.is_terminal:
        console.width = _FILE_COLUMNS
    console.print(table)
    failed = [row for row in rows if not row["passed"]]
    for row in failed:
        what = " ".join(str(row[k]) for k in ("op", "kernel", "dtype", "shape", "arch") if k in row)
        console.print(f"{what}: {row['failure']}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(rows) - len(failed)} of {len(rows)} passed", highlight=False)


def _check_table(result: Row) -> Table:
    table = Table(title=f"kernels against float64, {result['device']}")
    for column in ("op", "dtype", "shape", "error", "tolerance", ""):
        table.add_column(column, justify="right" if column in ("error", "tolerance") else "left")
    for row in result["ops"]:
        error, most = _number(row["error"]), _number(row["tolerance"])
        table.add_row(row["op"], row["dtype"], row["shape"], error, most, _verdict(row))
    return table


def _aot_table(result: Row) -> Table:
    table = Table(title=f"kernels compiled ahead of time, triton {result['triton']}")
    numbers = ("registers", "spills", "shared, bytes", "limit, bytes")
    for column in ("kernel", "arch", *numbers, "tensor core", "128-bit loads", "buffered", ""):
        table.add_column(column, justify="right" if column in numbers else "left")
    for row in result["kernels"]:
        table.add_row(row["kernel"], row["arch"], *_aot_cells(row), _verdict(row))
    return table


def _aot_cells(row: Row) -> list[str]:
    sizes = ("registers", "spills", "shared_bytes", "shared_limit_bytes")
    numbers = ["not reported" if row[k] is None else f"{row[k]:,}" for k in sizes]
    marks = [_yes(row["wide_loads"]), _yes(row["buffered"])]
    return [*numbers, row["tensor_core_instruction"] or _yes(row["tensor_core"]), *marks]


def _yes(value: bool | None) -> str:
    return "not reported" if value is None else "yes" if value else "no"


def _number(value: float | None) -> str:
    return "not reported" if value is None else f"{value:.2g}"


def _verdict(row: Row) -> str:
    return "passed" if row["passed"] else "[bold]FAILED[/bold]"
