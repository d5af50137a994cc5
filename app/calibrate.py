"""`stepscope calibrate`: what this machine can do at most."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from engine.calibration import Calibration, calibrate
from engine.threads import available_cores, check_threads, thread_count

_BUSY_CORES = 0.15


def run_calibration(threads: int | None, *, force: bool) -> Calibration:
    """Measure, or take what was measured before; progress goes to stderr."""
    count = available_cores() if threads is None else threads
    check_threads(count)
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("calibrating", total=1.0)

        def show(stage: str, fraction: float) -> None:
            bar.update(task, description=stage, completed=fraction)

        found = calibrate(count, force=force, progress=show)
    if found.foreign_load > _BUSY_CORES:
        print(
            f"stepscope: other processes kept {found.foreign_load:.1f} cores busy while this was "
            "measured; run `stepscope calibrate --force` on an idle machine",
            file=sys.stderr,
        )
    return found


def print_calibration(found: Calibration) -> None:
    """Peaks with their spread and the kernel that reached them."""
    table = Table(title=f"{found.device}, {thread_count(found.threads)}, {found.calibrated_at}")
    for column in ("peak", "value", "spread", "ridge, FLOP/byte", "best kernel"):
        table.add_column(column)
    for name, peak in found.dtypes.items():
        table.add_row(
            f"{name} matmul",
            f"{peak.peak_flops / 1e9:.4g} GFLOP/s",
            f"{peak.spread:.1%}",
            f"{found.ridge[name]:.3g}",
            peak.kernel,
        )
    bandwidth = f"{found.peak_bandwidth / 1e9:.3g} GB/s"
    spread = f"{found.bandwidth_spread:.1%}"
    table.add_row("read bandwidth", bandwidth, spread, "", found.bandwidth_kernel)
    Console().print(table)
