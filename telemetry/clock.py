"""The only module that reads time.

Every time in Stepscope is CLOCK_MONOTONIC in integer nanoseconds: on one machine all processes
share it, and it never jumps. `runs` keeps one (wall, monotonic) pair to translate for people.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

NS_PER_S = 1_000_000_000


def now_ns() -> int:
    """CLOCK_MONOTONIC, nanoseconds."""
    return time.monotonic_ns()


def thread_cpu_ns() -> int:
    """What the calling thread has used of a core, nanoseconds."""
    return time.thread_time_ns()


def wall_now() -> datetime:
    """Wall clock in UTC, for people only: never subtract two of these."""
    return datetime.now(UTC)


def seconds(duration_ns: int) -> float:
    """Nanoseconds to seconds."""
    return duration_ns / NS_PER_S


def sleep_s(duration_s: float) -> None:
    """Sleep, so that callers that wait need not import `time`."""
    time.sleep(duration_s)
