"""The linear layers alone on the vector kernels: a step without norms, attention and embedding."""

from __future__ import annotations

from typing import Any

from numba import cfunc, njit, types

from engine.backends.simd import SimdModel
from engine.backends.simd_memory import address
from kernels.linear.numba_impl import ADD, SILU_AND_MUL, STORE, linear_share
from kernels.llama_step.numba_impl import LAYER_FIELDS, LayerField, StepField
from kernels.simd.pool import barrier, run_on_all, thread_count, thread_number
from kernels.simd.vectors import address_of, load_int

_LAYER_BYTES = 8 * LAYER_FIELDS
_STEP = (
    *(StepField.ROWS, StepField.LAYERS, StepField.X_STRIDE, StepField.LAYER_TABLE),
    *(StepField.HEAD, StepField.X, StepField.ACT, StepField.ACT_STRIDE, StepField.ACT_BF16),
    *(StepField.QKV, StepField.QKV_STRIDE, StepField.LOGITS, StepField.LOGITS_STRIDE),
    *(StepField.SCRATCH, StepField.SCRATCH_BYTES),
)
(
    _ROWS, _LAYERS, _X_STRIDE, _LAYER_TABLE, _HEAD, _X, _ACT, _ACT_STRIDE, _ACT_BF16, _QKV,
    _QKV_STRIDE, _LOGITS, _LOGITS_STRIDE, _SCRATCH, _SCRATCH_BYTES,
) = (8 * int(field) for field in _STEP)  # fmt: skip
_L_QKV, _L_OUT, _L_GATE_UP, _L_DOWN = (
    8 * int(LayerField[name]) for name in ("QKV", "OUT", "GATE_UP", "DOWN")
)


@njit(nogil=True, error_model="numpy")
def _layer(step: int, layer: int, thread: int, threads: int, scratch: int) -> None:
    rows, bf16 = load_int(step + _ROWS), load_int(step + _ACT_BF16)
    x, x_stride = load_int(step + _X), load_int(step + _X_STRIDE)
    act, stride = load_int(step + _ACT), load_int(step + _ACT_STRIDE)
    qkv, qkv_stride = load_int(step + _QKV), load_int(step + _QKV_STRIDE)
    linear_share(
        thread, threads, load_int(layer + _L_QKV), act, stride, rows, STORE, qkv, qkv_stride, 0,
        scratch,
    )  # fmt: skip
    barrier()
    linear_share(
        thread, threads, load_int(layer + _L_OUT), act, stride, rows, ADD, x, x_stride, 0, scratch
    )
    barrier()
    linear_share(
        thread, threads, load_int(layer + _L_GATE_UP), act, stride, rows, SILU_AND_MUL, qkv,
        qkv_stride, bf16, scratch,
    )  # fmt: skip
    barrier()
    linear_share(
        thread, threads, load_int(layer + _L_DOWN), qkv, qkv_stride, rows, ADD, x, x_stride, 0,
        scratch,
    )  # fmt: skip
    barrier()


@njit(nogil=True, error_model="numpy")
def _run(step: int) -> None:
    thread, threads = int(thread_number()), int(thread_count())
    scratch = load_int(step + _SCRATCH) + thread * load_int(step + _SCRATCH_BYTES)
    for i in range(load_int(step + _LAYERS)):
        layer = load_int(step + _LAYER_TABLE) + i * _LAYER_BYTES
        _layer(step, layer, thread, threads, scratch)
    linear_share(
        thread, threads, load_int(step + _HEAD), load_int(step + _ACT),
        load_int(step + _ACT_STRIDE), load_int(step + _ROWS), STORE, load_int(step + _LOGITS),
        load_int(step + _LOGITS_STRIDE), 0, scratch,
    )  # fmt: skip


@cfunc(types.void(types.voidptr), nopython=True, cache=True)
def _linears(argument: Any) -> None:
    _run(address_of(argument))


def run_linears(model: SimdModel) -> None:
    """All linear layers and the head on the rows of the model's last step."""
    run_on_all(_linears.address, address(model._step))
