"""`stepscope run`: a workload without a server, recorded in the same file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from app.errors import EngineFailedError
from app.wiring import Session
from engine.config import EngineConfig
from engine.errors import UserError
from engine.messages import Load
from engine.modelled_setup import modelled_setup
from engine.workloads import check_load
from telemetry.queries.summary import run_summary


def run_headless(engine: EngineConfig, load: Load, db: Path) -> dict[str, Any]:
    """Record one run; its summary, in the JSON shape of `run`. Progress goes to stderr.

    Raises UserError or StoreError for bad input, before anything is written where it can.
    """
    total = check_load(load.workload, load.concurrency, load.rate, load.requests)
    if engine.modelled:
        modelled_setup(engine)  # what cannot be is an error before a file is touched
    fresh = not db.exists()
    session = Session(engine, db, replace(load, requests=total))
    try:
        _follow(session, total)
        session.end_engine()
        _check(session)
        _tell_left_out(session)
        assert session.run_id is not None
        summary = run_summary(session.store.reader(), session.run_id)
        return {**_what_ran(session), **summary, "run_id": session.run_id, "db": str(db)}
    finally:
        session.close()
        if fresh and session.run_id is None:
            db.unlink(missing_ok=True)  # nothing ran: leave nothing behind


def _what_ran(session: Session) -> dict[str, Any]:
    """On what these figures were measured, or by which device's model."""
    ready = session.ready
    names = ("clock", "backend", "device", "model", "dtype")
    return {name: ready.run[name] for name in names} if ready else {}


def _follow(session: Session, total: int) -> None:
    console = Console(file=sys.stderr)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("starting", total=None, note="")
        while session.phase in ("starting", "ready") and session.load_done is None:
            session.wait(0.2)
            if session.phase == "ready":
                done = session.finished_requests
                note = f"{done} of {total} requests"
                bar.update(task, description="running", completed=done, total=total, note=note)
            elif session.progress is not None:
                stage, fraction = session.progress.stage, session.progress.fraction
                known = fraction is not None
                bar.update(task, description=stage, total=1 if known else None, completed=fraction)


def _check(session: Session) -> None:
    if session.failure is None:
        return
    if session.user_error:
        raise UserError(session.failure)
    raise EngineFailedError(session.failure)


def _tell_left_out(session: Session) -> None:
    if session.rejections:
        why = session.rejections[0].message
        print(f"stepscope: {len(session.rejections)} or more times: {why}", file=sys.stderr)


def print_summary(summary: dict[str, Any]) -> None:
    """A table for people; a figure that a run cannot have is 'not reported'."""
    table = Table(title=f"run {summary['run_id']} in {summary['db']}", show_header=False)
    for name, value in summary.items():
        if name not in ("run_id", "db"):
            table.add_row(name, _cell(value))
    Console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "not reported"
    if isinstance(value, dict):
        return "  ".join(f"{k} {_cell(v)}" for k, v in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
