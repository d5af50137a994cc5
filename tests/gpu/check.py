"""One command on a GPU machine with stock Python 3.12, torch 2.11, triton 3.6 and numpy:

    python -m tests.gpu.check --json gpu.json

What the device reaches, whether every kernel is right there, how near each comes to the device, and
an 8B shape end to end. Five sections, each in a process of its own with a deadline, 400 s in all; a
section that is cut off or crashes leaves its rows so far and the next one runs. Exit 0: all ran and
all kernels are right; 1: not so; 2: no GPU. `--rehearse` runs the same code on tiny shapes in
Triton's interpreter and measures nothing: that proves the check, not a device.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.gpu.report import Report, lines
from tests.gpu.sections import Result, Section, run

SECTIONS = (
    Section("ceilings", 40),
    Section("correctness", 140),
    Section("attention", 90),
    Section("ops", 50),
    Section("engine", 80),
)
NO_GPU = "tests.gpu.check needs a GPU that torch sees, and finds none: run it on a GPU machine"


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.child is not None:
        return _child(options.child, options.rehearse)
    if not options.rehearse and not _has_gpu():
        print(NO_GPU, file=sys.stderr)
        return 2
    report = Report(_device(options.rehearse), options.rehearse)
    for section in SECTIONS:
        if options.section and section.name not in options.section:
            continue
        _show(report, run(section, _command(section.name, options.rehearse)))
        if options.json is not None:  # after each, so that nothing is lost with the machine
            options.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    return 0 if report.passed else 1


def _show(report: Report, result: Result) -> None:
    report.add(result)
    for line in lines(report, result):
        print(line, flush=True)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check", description=__doc__)
    names = [section.name for section in SECTIONS]
    parser.add_argument("--json", type=Path, help="file to write the results to")
    parser.add_argument("--section", action="append", choices=names, help="only this; again")
    parser.add_argument("--rehearse", action="store_true", help="tiny shapes, interpreted")
    parser.add_argument("--child", choices=names, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _command(name: str, rehearse: bool) -> list[str]:
    command = [sys.executable, "-m", "tests.gpu.check", "--child", name]
    return [*command, "--rehearse"] if rehearse else command


def _child(name: str, rehearse: bool) -> int:
    """One section: a row of JSON a line on stdout; what libraries print goes to stderr."""
    from kernels.checking.worker import protocol

    out = protocol()
    if rehearse and name != "correctness":  # its workers see to it themselves
        from kernels.checking.interpreter import interpret

        interpret()
    from tests.gpu.measure import Bench

    rows = import_module(f"tests.gpu.section_{name}").rows
    for row in rows(Bench(rehearse)):
        print(json.dumps(row), file=out, flush=True)
    return 0


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _device(rehearse: bool) -> dict[str, Any]:
    import torch
    import triton

    from telemetry.clock import wall_now

    name = "Triton's interpreter" if rehearse else torch.cuda.get_device_name()
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    return {"device": name, **versions, "at": wall_now().isoformat(timespec="seconds")}


if __name__ == "__main__":
    sys.exit(main())
