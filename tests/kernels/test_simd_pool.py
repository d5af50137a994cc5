"""One function on all of torch's threads: how many, that they meet, and that Python goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from kernels.simd.support import runs

if not runs("fp32"):
    pytest.skip("the vector kernels do not run on this CPU", allow_module_level=True)

from numba import cfunc, types

from kernels.simd.pool import barrier, run_on_all, thread_count, thread_number
from kernels.simd.vectors import address_of, fetch_add, load_int, store_int

MOST_TURNS = 1 << 33  # of a thread that waits for Python: a broken pool must end, not hang
body = cfunc(types.void(types.voidptr), nopython=True, cache=True)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@body
def _meet(argument: Any) -> None:
    """[arrived, early, numbers seen, count]: nobody passes a barrier before all have come."""
    record = address_of(argument)
    for turn in range(100):
        fetch_add(record, 1)
        barrier()
        if load_int(record) < (turn + 1) * thread_count():
            fetch_add(record + 8, 1)
        barrier()
    fetch_add(record + 16, 1 << (8 * int(thread_number())))
    store_int(record + 24, int(thread_count()))


@body
def _wait_for_python(argument: Any) -> None:
    """[told, waiting, gave up]."""
    record, turns = address_of(argument), 0
    fetch_add(record + 8, 1)
    while fetch_add(record, 0) == 0 and turns < MOST_TURNS:
        turns += 1
    if turns == MOST_TURNS:
        fetch_add(record + 16, 1)


def record_of(count: int) -> np.ndarray:
    return np.zeros(count, dtype=np.int64)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_thread_runs_once_and_all_meet_at_barriers(count: int) -> None:
    record = record_of(4)
    with threads(count):
        run_on_all(_meet.address, record.ctypes.data)
    assert list(record) == [100 * count, 0, sum(1 << (8 * i) for i in range(count)), count]


def test_torch_and_the_pool_take_turns() -> None:
    x = torch.randn(300, 300)
    with threads(2):
        expected = x @ x
        for _ in range(20):
            record = record_of(4)
            run_on_all(_meet.address, record.ctypes.data)
            assert record[0] == 200
            assert torch.equal(x @ x, expected)


def in_threads(calls: list[Callable[[], None]]) -> list[threading.Thread]:
    started = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in started:
        thread.start()
    return started


def test_python_runs_meanwhile() -> None:
    """The kernels wait for something that only the interpreter can do: it must have its lock."""
    record = record_of(3)
    waiting = in_threads([lambda: run_on_all(_wait_for_python.address, record.ctypes.data)])
    while not record[1]:
        pass
    record[0] = 1
    waiting[0].join()
    assert record[2] == 0


def test_several_python_threads_at_once() -> None:
    """Each has a team of its own, whose barriers are its own."""
    records = [record_of(4) for _ in range(4)]

    def call(record: np.ndarray) -> Callable[[], None]:
        return lambda: run_on_all(_meet.address, record.ctypes.data)

    with threads(2):
        for thread in in_threads([call(record) for record in records]):
            thread.join()
    for record in records:
        assert record[3] >= 1
        assert (record[0], record[1]) == (100 * record[3], 0)
