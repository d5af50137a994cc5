"""Where there is no triton, and where there is no driver: everything else works, in silence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.registry import FOLDERS
from tests.commands import Command

# As a Python that does not have triton, and that takes every warning for an error.
BLOCKED = """
import sys, warnings
sys.modules["triton"] = None
warnings.simplefilter("error")
"""
IMPORTS = """
import importlib, pkgutil, kernels
from kernels.registry import cases, contracts, specs
names = [m.name for m in pkgutil.walk_packages(kernels.__path__, "kernels.")]
for name in names:
    if not name.rpartition(".")[2].startswith("triton_"):
        importlib.import_module(name)
print(len(contracts()), len(cases()) > 0, len(specs()) > 0, bool(sys.modules.get("triton")))
"""
ENGINE = """
import torch
from engine.cuda_device import cuda_device
from engine.errors import UserError
from tests.engine.triton_child import run, torch_backend
found = run(torch_backend(32), 32, "continuous", 256)
print(sum(map(len, found["tokens"].values())), bool(sys.modules.get("triton")))
try:
    cuda_device()
except UserError as error:
    print(error)
"""
NO_TRITON = "stepscope: triton is not installed"


def _python(code: str) -> list[str]:
    """Lines that the code prints; none of them on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_kernels_are_imported_and_listed_without_triton() -> None:
    ops, *rest = _python(BLOCKED + IMPORTS)[0].split()
    assert int(ops) == len(FOLDERS) + 3  # three folders have two
    assert rest == ["True", "True", "False"]


def test_the_cpu_engine_runs_without_triton() -> None:
    tokens, refused = _python(BLOCKED + ENGINE)
    assert tokens == "34 False"
    assert refused.startswith("backend cuda needs triton, which is not installed")


def test_nothing_is_said_and_nothing_waits_where_there_is_no_driver() -> None:
    """triton is there; only a launch needs a driver, and nothing here launches."""
    listed = _python("import sys, warnings\nwarnings.simplefilter('error')\n" + IMPORTS)
    assert listed[0].endswith("True True False")


@pytest.mark.parametrize("command", ["check", "aot"])
def test_the_commands_say_so(command: str) -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        f"sys.argv = ['stepscope', 'kernels', {command!r}]\n"
        "from app.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 1)
    assert lines[0].startswith(NO_TRITON)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("check", "--op", "paged_decod"), "unknown op 'paged_decod': use one of "),
        (
            ("aot", "--arch", "sm_75"),
            "unknown arch 'sm_75': use one of gfx942, sm_100, sm_80, sm_90",
        ),
    ],
)
def test_unknown_names_are_one_line(
    stepscope: Path, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    assert says in Command(stepscope, tmp_path).refuses("kernels", *arguments)
