"""Triton's interpreter, repaired: bfloat16 and float8 compute as they do on a GPU.

The interpreter keeps bfloat16 as 16-bit and float8 as 8-bit integers. Some of its operations take
those bits for numbers (a bfloat16 dot is wrong by nine orders of magnitude: triton issue 11584),
its conversion to bfloat16 cuts off what it should round, and its rounding to float8 loses the
carry. Here such values become float32 before an operation and are rounded to nearest even after it,
as PTX defines its conversions. Works with triton 3.6 and 3.9.

What the interpreter cannot show stays so: it runs one program after the other, so it knows no
races; it reads and writes any address of the process; it checks no tile size or dtype against a
target; and its float32 dot is exact where a GPU's default is tf32.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Bits = NDArray[Any]
Floats = NDArray[np.float32]
SWITCH = "TRITON_INTERPRET"
_REPAIRED = "stepscope_repaired"


def interpret() -> None:
    """Switch this process to the interpreter. Raises RuntimeError where triton was imported.

    A process that interprets cannot compile, so this is for a process of its own.
    """
    if "triton" in sys.modules and os.environ.get(SWITCH) != "1":
        raise RuntimeError("triton is already imported: interpret in a process of its own")
    os.environ[SWITCH] = "1"
    repair()


def repair() -> None:
    """Patch the interpreter of this process, once."""
    from triton.runtime import interpreter

    if hasattr(interpreter.InterpreterBuilder, _REPAIRED):
        return
    narrow = _Narrow(interpreter.TensorHandle)
    _patch_casts(interpreter.InterpreterBuilder, narrow)
    _patch_arithmetic(interpreter.InterpreterBuilder, narrow)
    _refuse_reductions(interpreter)
    setattr(interpreter.InterpreterBuilder, _REPAIRED, True)


class _Narrow:
    """To and from the float types that numpy does not have."""

    def __init__(self, handle: Callable[[Any, Any], Any]) -> None:
        import triton.language as tl

        self.handle, self.float32, self.bool = handle, tl.float32, tl.int1
        self.types = {
            tl.bfloat16: torch.bfloat16,
            tl.float8e4nv: torch.float8_e4m3fn,
            tl.float8e5: torch.float8_e5m2,
        }

    def is_narrow(self, value: Any) -> bool:
        return value.dtype.scalar in self.types

    def floats(self, value: Any) -> Floats:
        """The numbers behind a value of a narrow type."""
        return widen(value.data, self.types[value.dtype.scalar])

    def wide(self, value: Any) -> Any:
        """The same value in float32, where its type is narrow."""
        return self.handle(self.floats(value), self.float32) if self.is_narrow(value) else value

    def rounded(self, numbers: Bits, dtype: Any) -> Any:
        return self.handle(narrow(numbers, self.types[dtype.scalar]), dtype.scalar)


def widen(bits: Bits, dtype: torch.dtype) -> Floats:
    """Stored bits -> float32 of the same shape."""
    stored = torch.from_numpy(np.array(bits, order="C")).view(dtype)
    found: Floats = stored.float().numpy()
    return found


def narrow(numbers: Bits, dtype: torch.dtype) -> Bits:
    """Numbers -> bits of the nearest value, ties to even; float8 saturates, as PTX's satfinite."""
    single = np.array(numbers, dtype=np.float32, order="C")
    if dtype is not torch.bfloat16:
        most = torch.finfo(dtype).max
        single = np.clip(single, -most, most)
    bits = torch.from_numpy(single).to(dtype)
    found: Bits = bits.view(torch.uint16 if dtype.itemsize == 2 else torch.uint8).numpy()
    return found


def _patch_casts(builder: Any, narrow: _Narrow) -> None:
    cast, convert = builder.cast_impl, builder.create_fp_to_fp

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if src.dtype.scalar == dst_type.scalar:
            return src
        if dst_type.scalar in narrow.types:
            return narrow.rounded(narrow.wide(src).data, dst_type)
        return cast(self, narrow.wide(src), dst_type)

    def fp_to_fp(self: Any, src: Any, dst_type: Any, rounding: Any) -> Any:
        if narrow.is_narrow(src) or dst_type.scalar in narrow.types:
            return cast_impl(self, src, dst_type)
        return convert(self, src, dst_type, rounding)

    builder.cast_impl, builder.create_fp_to_fp = cast_impl, fp_to_fp


def _patch_arithmetic(builder: Any, narrow: _Narrow) -> None:
    binary, unary, ternary = builder.binary_op, builder.unary_op, builder.ternary_op
    dot, fma = builder.create_dot, builder.create_fma

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        if not narrow.is_narrow(lhs):
            return binary(self, lhs, rhs, op)
        found = op(narrow.floats(lhs), narrow.floats(rhs))
        if found.dtype == np.bool_:
            return narrow.handle(found, narrow.bool)
        return narrow.rounded(found, lhs.dtype)

    def unary_op(self: Any, arg: Any, op: Any) -> Any:
        if not narrow.is_narrow(arg):
            return unary(self, arg, op)
        return narrow.rounded(op(narrow.floats(arg)), arg.dtype)

    def ternary_op(self: Any, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        if op is np.where or not narrow.is_narrow(other):  # choosing needs no arithmetic
            return ternary(self, lhs, rhs, other, op)
        found = op(narrow.floats(lhs), narrow.floats(rhs), narrow.floats(other))
        return narrow.rounded(found, other.dtype)

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if not narrow.is_narrow(z):
            return fma(self, x, y, z)
        return narrow.rounded(narrow.floats(x) * narrow.floats(y) + narrow.floats(z), z.dtype)

    def create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        return dot(self, narrow.wide(a), narrow.wide(b), d, *options)

    builder.binary_op, builder.unary_op, builder.ternary_op = binary_op, unary_op, ternary_op
    builder.create_fma, builder.create_dot = create_fma, create_dot


def _refuse_reductions(interpreter: Any) -> None:
    """A reduction would take the bits for numbers; no kernel here reduces in 16 bits."""
    for ops in (interpreter.ReduceOps, interpreter.ScanOps):
        ops.apply_impl = _refusing(ops.apply_impl)


def _refusing(apply_impl: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def checked(self: Any, values: Any) -> Any:
        import triton.language as tl

        types = (tl.bfloat16, tl.float8e4nv, tl.float8e5)
        if any(value.dtype.scalar in types for value in values):
            raise NotImplementedError("reduce or scan in float32: cast bfloat16 and float8 first")
        return apply_impl(self, values)

    return checked
