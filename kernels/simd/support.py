"""Which CPUs run the vector kernels. Asked before numba is imported: it takes half a second."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

_BASE = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}
_NEEDS = {
    "fp32": _BASE,
    "int8": _BASE | {"avx512_bf16"},
    "bf16": _BASE | {"avx512_bf16"},
    "int4": _BASE | {"avx512_bf16"},
}


@lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """Instruction sets of this CPU as Linux names them; empty where it does not say."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(x.split()[2:]) for x in lines if x.startswith("flags")), frozenset())


def runs(dtype: str) -> bool:
    """Whether the vector kernels run here in this dtype (fp32, bf16, int8 or int4)."""
    if dtype not in _NEEDS or not _NEEDS[dtype] <= cpu_flags():
        return False
    from kernels.simd.pool import runtime

    return runtime() is not None
