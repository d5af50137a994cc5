"""The vector kernels' matmul as candidates of calibration: a peak is the best of all kernels."""

from __future__ import annotations

import numpy as np
import torch

from engine.backends.simd_memory import Ints, address, aligned
from engine.calibration_kernels import Candidate, Run
from kernels.linear.numba_impl import KIND_BF16, KIND_F32, TILE_BYTES, LinearField
from kernels.linear.pack import PANEL
from kernels.llama_step.fields import (
    LAYER_FIELDS,
    STEP_FIELDS,
    LayerField,
    Part,
    StepField,
)
from kernels.llama_step.numba_impl import forward_address
from kernels.simd.memory import huge
from kernels.simd.pool import run_on_all

_KINDS = {"fp32": (KIND_F32, 4), "bf16": (KIND_BF16, 2)}
_PATTERN = 0x3C  # as bytes of a float: about 0.01, and no page stays the system's zero page


class _Matmuls:
    """`count` weights [out, inner] that one call multiplies one after the other."""

    def __init__(self, dtype: str, rows: int, inner: int, out: int, count: int) -> None:
        kind, width = _KINDS[dtype]
        self._keep: list[np.ndarray] = []
        self._layers = np.zeros((count, LAYER_FIELDS), dtype=np.int64)
        nothing = self._record(kind, 0, 0, inner, 0)
        weights = self._filled(out * inner * width * count)
        for i, layer in enumerate(self._layers):
            for field in (LayerField.OUT, LayerField.GATE_UP, LayerField.DOWN):
                layer[field] = nothing
            start = weights + i * out * inner * width
            layer[LayerField.QKV] = self._record(
                kind, start, PANEL * inner * width, inner, out // PANEL
            )
        self._step = self._make_step(rows, inner * width, 4 * out)

    def _make_step(self, rows: int, x_bytes: int, out_bytes: int) -> Ints:
        step = np.zeros(STEP_FIELDS, dtype=np.int64)
        threads = torch.get_num_threads()
        fields = {
            StepField.ROWS: rows,
            StepField.LAYERS: len(self._layers),
            StepField.LAYER_TABLE: address(self._layers),
            StepField.ACT: self._filled(rows * x_bytes),
            StepField.ACT_STRIDE: x_bytes,
            StepField.QKV: self._filled(rows * out_bytes),
            StepField.QKV_STRIDE: out_bytes,
            StepField.SCRATCH: self._filled(threads * TILE_BYTES),
            StepField.SCRATCH_BYTES: TILE_BYTES,
            StepField.COUNTER: self._filled(8),
            StepField.PARTS: int(Part.LINEARS),
        }
        for field, value in fields.items():
            step[field] = value
        return step

    def _record(self, kind: int, weights: int, panel_bytes: int, inner: int, panels: int) -> int:
        record = np.zeros(len(LinearField), dtype=np.int64)
        record[LinearField.KIND], record[LinearField.WEIGHTS] = kind, weights
        record[LinearField.PANEL_BYTES], record[LinearField.INNER] = panel_bytes, inner
        record[LinearField.PANELS] = panels
        self._keep.append(record)
        return address(record)

    def _filled(self, size_bytes: int) -> int:
        memory = huge(size_bytes) if size_bytes > 1 << 20 else aligned(size_bytes)
        memory[:] = _PATTERN
        self._keep.append(memory)
        return address(memory)

    def __call__(self) -> None:
        run_on_all(forward_address(), address(self._step))


def vector_matmul(dtype: str, rows: int, inner: int, out: int) -> Candidate:
    """[rows, inner] x [inner, out]; out a multiple of 64."""
    work = 2.0 * rows * inner * out

    def build() -> Run:
        return _Matmuls(dtype, rows, inner, out, 1)

    return Candidate(f"vector {rows}x{inner}x{out}", work, build)


def vector_stream(dtype: str, inner: int, out: int, total_bytes: int) -> Candidate:
    """One row through as many different weights as fill total_bytes."""
    each = inner * out * _KINDS[dtype][1]
    count = max(1, round(total_bytes / each))

    def build() -> Run:
        return _Matmuls(dtype, 1, inner, out, count)

    return Candidate(f"vector {dtype} linears {out}x{inner}", float(each * count), build)
