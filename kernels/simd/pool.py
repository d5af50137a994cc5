"""One function run by all of torch's own threads at once.

A pool of our own would fight with torch's, whose threads spin for a while after each of their
parallel regions: two pools on the same cores stall each other by 10 times and more. torch's pool is
the GNU OpenMP runtime in its wheel; a region is one call into it, and costs microseconds.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import torch
from numba import types

thread_number = types.ExternalFunction("omp_get_thread_num", types.int32())
thread_count = types.ExternalFunction("omp_get_num_threads", types.int32())
barrier = types.ExternalFunction("GOMP_barrier", types.void())


@lru_cache(maxsize=1)
def runtime() -> ctypes.CDLL | None:
    """torch's OpenMP runtime; None where it is another one than GNU's."""
    torch.get_num_threads()  # torch is loaded, and with it the runtime
    folder = Path(torch.__file__).parent
    found = {*folder.glob("lib/libgomp*.so*"), *folder.parent.glob("torch.libs/libgomp*.so*")}
    for path in sorted(found):
        library = ctypes.CDLL(str(path))
        if all(hasattr(library, name) for name in ("GOMP_parallel", "GOMP_barrier")):
            _name_symbols(library)
            return library
    return None


def _name_symbols(library: ctypes.CDLL) -> None:
    """Compiled code finds the runtime's functions by these names."""
    for name in ("omp_get_thread_num", "omp_get_num_threads", "GOMP_barrier"):
        llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)


def run_on_all(body: Any, argument: int) -> None:
    """Call a numba cfunc `void (void*)` on each of torch's threads with one argument, an address.

    Returns when all have returned. The interpreter's lock is released meanwhile.
    """
    library = runtime()
    assert library is not None
    library.GOMP_parallel(
        ctypes.c_void_p(body), ctypes.c_void_p(argument), torch.get_num_threads(), 0
    )


runtime()  # compiled code that is loaded after this module finds its symbols
