"""Ask for huge pages: weights are streamed once a step, and every 4 KiB page costs a look-up.

Measured here: all packed linears of a 135M model in bf16 take 7.9 ms instead of 9.9 at four rows.
glibc reads the setting when a process starts, so it must be in its environment before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_VARIABLE = "GLIBC_TUNABLES"
_SETTING = "glibc.malloc.hugetlb"


def with_huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a new process whose malloc uses huge pages where the kernel has them.

    A setting that somebody has made is left alone.
    """
    tunables = environment.get(_VARIABLE, "")
    if _SETTING in tunables:
        return dict(environment)
    ours = f"{_SETTING}=1"
    return {**environment, _VARIABLE: f"{tunables}:{ours}" if tunables else ours}


def restart_with_huge_pages() -> None:
    """Start this very command again in such an environment, unless it already runs in one."""
    if _SETTING not in os.environ.get(_VARIABLE, ""):
        arguments = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, arguments, with_huge_pages(os.environ))
