"""Waiting for what another process does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psutil
import pytest

from telemetry.clock import NS_PER_S, now_ns, sleep_s

T = TypeVar("T")


def until(look: Callable[[], T], what: str, timeout_s: float = 60.0) -> T:
    """The first true value of `look`; fails after timeout_s."""
    end = now_ns() + round(timeout_s * NS_PER_S)
    while not (found := look()):
        if now_ns() > end:
            pytest.fail(f"after {timeout_s:g} s still waiting for {what}")
        sleep_s(0.02)
    return found


def ended(pid: int) -> bool:
    """Whether a process runs no more (a zombie that nobody has reaped yet has ended)."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
