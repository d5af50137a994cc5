"""The monotonic clock for compiled code: where an op of a step ends only the op itself can say.

It is CLOCK_MONOTONIC, which telemetry.clock reads too, so that their times can be subtracted.
"""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
from numba import njit, types

from kernels.simd.vectors import load_int

_CLOCK_MONOTONIC, _NS_PER_S = 1, 1_000_000_000

_libc = ctypes.CDLL(None)
llvm.add_symbol("stepscope.clock_gettime", ctypes.cast(_libc.clock_gettime, ctypes.c_void_p).value)
_clock_gettime = types.ExternalFunction(
    "stepscope.clock_gettime", types.int32(types.int32, types.int64)
)


@njit(nogil=True, error_model="numpy")
def monotonic_ns(timespec: int) -> int:
    """Nanoseconds now; timespec: address of 16 bytes that this thread may overwrite."""
    _clock_gettime(_CLOCK_MONOTONIC, timespec)
    now: int = load_int(timespec) * _NS_PER_S + load_int(timespec + 8)
    return now
