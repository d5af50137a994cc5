"""Kernels that calibration times: matmuls for FLOP/s, streams beyond the cache for bandwidth.

A peak is the best that anything does on this machine, so plain and packed (oneDNN) kernels compete,
in the shapes that the engine runs and in large ones. Each candidate builds its operands when asked
and owns them until it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
import torch.nn.functional as F

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PACK_ROWS = 64
MATMUL_SHAPES = (
    (512, 576, 3072),
    (1024, 1536, 576),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
)
STREAM_BYTES = 256 * 2**20
STREAM_SHAPES = ((49152, 576), (4096, 4096), (3072, 576))  # LM head, large, gate/up of the default

Run = Callable[[], object]
Linear = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel on one shape; work: FLOPs or bytes of one run. build raises if unsupported."""

    name: str
    work: float
    build: Callable[[], Run]


def pack(weight: torch.Tensor, rows: int = PACK_ROWS) -> torch.Tensor:
    """The weight in oneDNN's blocked layout; RuntimeError or AttributeError where unsupported."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)  # type: ignore[no-any-return]


def packed_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")  # type: ignore[no-any-return]


def _filled(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Written memory: pages that were never touched would all read one zero page."""
    return torch.full(shape, 0.01, dtype=dtype)


# --- FLOP/s ---


def _matmul(dtype: torch.dtype, rows: int, inner: int, out: int, packed: bool) -> Run:
    x = _filled(rows, inner, dtype=dtype)
    weight = _filled(out, inner, dtype=dtype)
    if packed:
        weight = pack(weight, rows)
        return lambda: packed_linear(x, weight)
    return lambda: F.linear(x, weight)


def matmul(dtype: str, rows: int, inner: int, out: int, *, packed: bool) -> Candidate:
    """[rows, inner] x [inner, out] as the engine's linears run it."""
    kind = "packed" if packed else "plain"
    return Candidate(
        f"{kind} {rows}x{inner}x{out}",
        2.0 * rows * inner * out,
        lambda: _matmul(DTYPES[dtype], rows, inner, out, packed),
    )


def batched_matmul(dtype: str, batch: int, size: int) -> Candidate:
    def build() -> Run:
        a = _filled(batch, size, size, dtype=DTYPES[dtype])
        return lambda: torch.bmm(a, a)

    return Candidate(f"batched {batch}x{size}x{size}x{size}", 2.0 * batch * size**3, build)


def matmul_candidates(dtype: str) -> list[Candidate]:
    """Shapes of a prefill (512-1024 rows, inner 576-1536), large squares, and batched."""
    linears = [
        matmul(dtype, *shape, packed=packed) for shape in MATMUL_SHAPES for packed in (True, False)
    ]
    return [*linears, batched_matmul(dtype, 8, 512)]


def scout(dtype: str) -> Candidate:
    """A small matmul whose rate tells which of the candidates this machine can afford."""
    return matmul(dtype, 512, 512, 512, packed=False)


# --- read bandwidth ---


def stream_bytes() -> int:
    """How much to stream: at least four times the last-level cache, within free memory."""
    wanted = max(STREAM_BYTES, 4 * last_level_cache_bytes())
    return min(wanted, int(psutil.virtual_memory().available) // 4)


def last_level_cache_bytes() -> int:
    """Size of the largest cache of core 0, bytes; 0 where the system does not tell."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text))
    return max(sizes)


def _linears(dtype: torch.dtype, shape: tuple[int, int], count: int, packed: bool) -> Run:
    """Two rows through `count` different matrices, as a decode step streams its weights."""
    linear: Linear = packed_linear if packed else F.linear
    plain = (_filled(*shape, dtype=dtype) for _ in range(count))
    weights = [pack(weight) if packed else weight for weight in plain]
    x = _filled(2, shape[1], dtype=dtype)

    def run() -> None:
        for weight in weights:
            linear(x, weight)

    return run


def linear_stream(dtype: str, shape: tuple[int, int], total: int, *, packed: bool) -> Candidate:
    each = shape[0] * shape[1] * DTYPES[dtype].itemsize
    count = max(1, round(total / each))
    kind = "packed" if packed else "plain"
    return Candidate(
        f"{kind} {dtype} linears {shape[0]}x{shape[1]}",
        float(each * count),
        lambda: _linears(DTYPES[dtype], shape, count, packed),
    )


def _sum(elements: int) -> Run:
    data = _filled(elements, dtype=torch.float32)
    return lambda: data.sum()


def _dot(elements: int) -> Run:
    a, b = _filled(elements // 2, dtype=torch.float32), _filled(elements // 2, dtype=torch.float32)
    return lambda: torch.dot(a, b)


def bandwidth_candidates(total: int) -> list[Candidate]:
    """Reductions over one long array, and linears streaming many matrices."""
    elements = total // 8 * 2
    streams = [
        linear_stream(dtype, shape, total, packed=packed)
        for dtype in DTYPES
        for shape in STREAM_SHAPES
        for packed in (True, False)
        if packed or shape == STREAM_SHAPES[0]
    ]
    sums = Candidate("sum fp32", 4.0 * elements, lambda: _sum(elements))
    dots = Candidate("dot fp32", 4.0 * elements, lambda: _dot(elements))
    return [sums, dots, *streams]
