"""One process that checks or compiles what it is told, an item a line.

    python -m kernels.checking.worker check|aot

First it prints what there is, then for each index that it reads one line of JSON. It is a process
of its own since interpreting and compiling exclude each other, and since a kernel that reads a wild
address ends it: kernels.checking.pool then says so of that item and starts another.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

import torch

from kernels.checking.case import Case

Row = dict[str, Any]
Answer = Callable[[int], Row]


def check_answers(cases: list[Case]) -> tuple[Row, Answer]:
    """Cases on the GPU where there is one, else in Triton's interpreter, which must be on."""
    from kernels.checking.check import check, dtype_name

    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    items = [{"op": c.op, "dtype": dtype_name(c.dtype), "shape": c.shape} for c in cases]
    name = torch.cuda.get_device_name() if gpu else "Triton's interpreter"
    blank = {"error": None, "tolerance": None, "passed": False}
    header = {"device": name, "blank": blank, "items": items}
    return header, lambda i: asdict(check(cases[i], device))


def registered_cases() -> list[Case]:
    """Of all ops, with the interpreter on where there is no GPU."""
    from kernels.checking.interpreter import interpret
    from kernels.registry import cases

    torch.set_num_threads(1)
    if not torch.cuda.is_available():
        interpret()
    return cases()


def aot_answers() -> tuple[Row, Answer]:
    """Every kernel for every architecture that its launch parameters are for."""
    import triton

    from kernels.checking.aot import blank, compiled, jobs
    from kernels.registry import specs

    found = jobs(specs())
    items = [{"op": j.spec.op, "kernel": j.spec.name, "arch": j.arch} for j in found]
    header = {"triton": triton.__version__, "blank": asdict(blank()), "items": items}
    return header, lambda i: asdict(compiled(found[i]))


def serve(answers: tuple[Row, Answer], read: TextIO, write: TextIO) -> None:
    """Answer until the input ends."""
    header, answer = answers
    print(json.dumps(header), file=write, flush=True)
    for line in read:
        print(json.dumps(answer(int(line))), file=write, flush=True)


def protocol() -> TextIO:
    """Standard output for answers alone: what libraries and kernels print goes to stderr."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def main(kind: str) -> None:
    out = protocol()
    if kind == "check":
        serve(check_answers(registered_cases()), sys.stdin, out)
        return
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # of no use here, and a twentieth of the time
    with tempfile.TemporaryDirectory() as cache:  # what is reported was compiled now
        os.environ["TRITON_CACHE_DIR"] = cache
        serve(aot_answers(), sys.stdin, out)


if __name__ == "__main__":
    main(sys.argv[1])
