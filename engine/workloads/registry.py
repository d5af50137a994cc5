"""Workloads by name, or from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.errors import UserError, unknown
from engine.workloads.builtin import longprompt, skew, steady
from engine.workloads.chat import chat
from engine.workloads.files import SUFFIXES, file_workload
from engine.workloads.outputs import longcontext, longoutput
from engine.workloads.traces import azure_code, azure_conv, mooncake
from engine.workloads.workload import Workload

WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "skew": skew,
    "steady": steady,
    "longprompt": longprompt,
    "longoutput": longoutput,
    "longcontext": longcontext,
    "chat": chat,
    "azure-conv": azure_conv,
    "azure-code": azure_code,
    "mooncake": mooncake,
}
"""Name to factory; a factory takes the seed."""
_TRACES = {"azure-conv": azure_conv, "azure-code": azure_code, "mooncake": mooncake}


def load_workload(
    name_or_path: str, *, seed: int, requests: int | None = None, as_recorded: bool = False
) -> Workload:
    """A built-in workload, or one of a .csv or .jsonl file; requests None: endless.

    as_recorded: a built-in trace is not scaled down to fit a small machine.
    UserError: unknown names list the known ones, bad files name the line.
    """
    if as_recorded and name_or_path in _TRACES:
        return _TRACES[name_or_path](seed, None).bounded(requests)
    if name_or_path in WORKLOADS:
        return WORKLOADS[name_or_path](seed).bounded(requests)
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return file_workload(path).bounded(requests)
    if "/" in name_or_path or path.suffix.lower() in SUFFIXES:
        raise UserError(f"workload file {path} does not exist: give a .csv or .jsonl file")
    raise unknown("workload", name_or_path, WORKLOADS)
