"""One kernel as its launcher compiles it, and what its machine code must show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AotSpec:
    """A kernel's real signature and constants; compiled without a driver by kernels.checking.aot.

    name: as printed, "paged_decode split". fn: returns the jit function, imported lazily.
    signature: type of each argument that is not a constant, {"x": "*bf16", "rows": "i32"}.
    options: num_warps, num_stages. divisible: arguments that the launcher passes as multiples of
    16 (addresses, strides), since without them other code would be inspected than runs.
    tensor_core: must use HMMA, HGMMA, UTCMMA or mfma. wide_loads: must load 128 bits at once from
    global memory. buffered: the main loop's loads must be in flight more than one stage ahead.
    archs: those whose launch parameters these are; empty: the same on all.
    matmul: tiles tall enough (64 rows or more) for the instructions of whole warpgroups: must use
    HGMMA on sm_90 and UTCMMA on sm_100.
    """

    name: str
    op: str
    fn: Callable[[], Any]
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    options: Mapping[str, int]
    divisible: tuple[str, ...]
    tensor_core: bool = False
    wide_loads: bool = False
    buffered: bool = False
    archs: tuple[str, ...] = ()
    matmul: bool = False
