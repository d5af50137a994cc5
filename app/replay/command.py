"""`stepscope replay`: the recorded workload under other settings, predicted by a fitted model."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.options_command import options_command
from app.replay.options import Options
from engine.errors import UserError

if TYPE_CHECKING:
    from app.replay.predict import Fitted, Predictor
    from app.replay.sweep import Grid, Targets
    from engine.replay.recording import Settings

EXAMPLE = "Example: stepscope replay a.duckdb --scheduler chunked --chunk-tokens 256"
_BUDGETS = (32, 64, 128, 256, 512, 1024)
_OF_A_SWEEP = ("schedulers", "budgets", "batches", "blocks", "ttft_slo", "tpot_slo", "itl_slo")


def replay_command() -> Callable[..., None]:
    """The command, with Options' fields as its options."""
    about = "A recorded run under other settings: predicted beside recorded."
    return options_command("replay", about, Options, run)


def run(o: Options) -> None:
    """Print one prediction, or a grid of them. Raises UserError or StoreError."""
    from app.replay.predict import Predictor
    from app.replay.report import print_prediction, print_sweep

    _check(o)
    fitted, recorded = opened(o.file, o.run)
    base = _settings(o, fitted)
    with Predictor(fitted) as predictor:
        if o.sweep:
            found = {**recorded, **_swept(o, predictor, base)}
            show = print_sweep
        else:
            found = {**recorded, "predicted": _predicted(o, predictor, base)}
            show = print_prediction
    found["model"] = fitted.to_json()
    if o.as_json:
        print(json.dumps(found))
    else:
        show(found)


def opened(file: Path, run_id: str | None) -> tuple[Fitted, dict[str, Any]]:
    """The fitted recording, and what is told of it. The file is only read.

    Raises StoreError for a file that is not ours, UserError for a run that cannot be replayed.
    """
    from app.replay.predict import Fitted
    from app.replay.recorded import describe, pick_run, read_recording
    from telemetry.database import open_reader

    with open_reader(file) as reader:
        recording = read_recording(reader, pick_run(reader, run_id))
        told = {"file": str(file), **describe(reader, recording)}
    return Fitted.of(recording), told


def _check(o: Options) -> None:
    given = [name for name in _OF_A_SWEEP if getattr(o, name) is not None]
    if given and not o.sweep:
        raise UserError(f"--{given[0].replace('_', '-')} belongs to a grid: add --sweep")
    if o.draws is not None and not 1 <= o.draws <= 100:
        raise UserError(f"--draws is {o.draws}: use 1 to 100")


def _settings(o: Options, fitted: Fitted) -> Settings:
    """Those recorded, with what was asked for."""
    return fitted.recording.settings.changed(
        scheduler=o.scheduler,
        chunk_tokens=o.chunk_tokens,
        max_batch=o.max_batch,
        kv_blocks=o.kv_blocks,
        prefix_cache=o.prefix_cache,
    )


def _predicted(o: Options, predictor: Predictor, settings: Settings) -> dict[str, Any]:
    from app.replay.predict import DRAWS

    draws = DRAWS if o.draws is None else o.draws
    with _progress(draws) as tell:
        return predictor.predict(settings, draws, tell)


def _swept(o: Options, predictor: Predictor, base: Settings) -> dict[str, Any]:
    from app.replay.sweep import DRAWS, sweep

    grid, draws = _grid(o), DRAWS if o.draws is None else o.draws
    with _progress(len(grid.points(base))) as tell:
        return sweep(predictor, base, grid, _targets(o), draws, tell)


def _grid(o: Options) -> Grid:
    """The axes that were given; with none, token budgets of chunked."""
    from app.replay.sweep import Grid

    budgets = _wholes("--budgets", o.budgets)
    schedulers = tuple(
        name.strip() for name in (o.schedulers or o.scheduler or "chunked").split(",")
    )
    return Grid(
        schedulers,
        budgets or (_BUDGETS if o.chunk_tokens is None else ()),
        _wholes("--batches", o.batches),
        _wholes("--blocks", o.blocks),
    )


def _wholes(name: str, text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in (text or "").split(",") if part.strip())
    except ValueError:
        raise UserError(f"{name} is {text!r}: use whole numbers with commas, 64,128,256") from None


def _targets(o: Options) -> Targets:
    from app.replay.sweep import Targets

    return Targets(*(_ms(name, getattr(o, name)) for name in ("ttft_slo", "tpot_slo", "itl_slo")))


def _ms(name: str, value: float | None) -> float | None:
    """Milliseconds to seconds."""
    if value is None:
        return None
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"--{name.replace('_', '-')} is {value:g}: use more than 0 ms")
    return value / 1000


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's stderr, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("replaying", total=total)
        yield lambda done: bar.update(task, completed=done)
