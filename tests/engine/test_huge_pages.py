"""The environment of the engine's process: its malloc asks for huge pages, others' wishes stay."""

from __future__ import annotations

import subprocess
import sys

from engine.huge_pages import with_huge_pages


def test_the_setting_joins_what_is_there() -> None:
    assert with_huge_pages({}) == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    both = with_huge_pages({"GLIBC_TUNABLES": "glibc.malloc.perturb=0", "A": "b"})
    assert both == {"GLIBC_TUNABLES": "glibc.malloc.perturb=0:glibc.malloc.hugetlb=1", "A": "b"}


def test_a_setting_that_somebody_made_is_left_alone() -> None:
    off = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
    assert with_huge_pages(off) == off


def test_a_command_restarts_itself_once_with_its_arguments() -> None:
    code = (
        "import os, sys; from engine.huge_pages import restart_with_huge_pages as restart\n"
        "restart(); print(os.environ['GLIBC_TUNABLES'], sys.argv[1:])"
    )
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(p for p in sys.path if p)}
    ended = subprocess.run(
        [sys.executable, "-c", code, "a", "--b"],
        env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ended.stdout == "glibc.malloc.hugetlb=1 ['a', '--b']\n"
