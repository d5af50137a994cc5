"""How many cores there are to use. No torch."""

from __future__ import annotations

import os

from engine.errors import UserError


def available_cores() -> int:
    """Cores that this process may run on (a container or taskset may offer fewer than exist)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count(threads: int) -> str:
    """For people: '1 thread', '2 threads'."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def cores_beside_a_server() -> int:
    """One core stays free for the server: spinning threads on all of them slow each other."""
    return max(1, available_cores() - 1)


def check_threads(threads: int) -> None:
    """Raise UserError unless there is a core for each: more than that spin and slow each other."""
    if not 1 <= threads <= available_cores():
        raise UserError(f"threads is {threads}: use 1 to {available_cores()}, the cores there are")
