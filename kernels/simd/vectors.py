"""Sixteen float32 as one value (a ZMM register), and what can be done with it inside numba code.

Every operation is one instruction or a fixed sequence: sums have one order whatever the compiler
does around them, so that a row's result never depends on the rows beside it. Addresses are int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 16
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT = ir.FloatType()


class BFloat(ir.types.Type):
    """LLVM's bfloat, which llvmlite does not name."""

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


FLOATS = ir.VectorType(FLOAT, LANES)
INTS = ir.VectorType(I32, LANES)
SHORTS = ir.VectorType(I16, LANES)
BF16_PAIRS = ir.VectorType(BFloat(), 2 * LANES)
_BF16S = ir.VectorType(BFloat(), LANES)
HALVES = ir.VectorType(ir.HalfType(), LANES)
WORDS = ir.VectorType(I16, 2 * LANES)


class _Vector(types.Type):
    def __init__(self) -> None:
        super().__init__(name="float32x16")


F32x16 = _Vector()


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, FLOATS)


Generate = Callable[[Any, Any, tuple[Any, ...]], Any]


def operation(result: Any, *arguments: Any) -> Callable[[Generate], Any]:
    """An intrinsic of fixed types from a function (builder, context, values) -> value."""

    def decorate(generate: Generate) -> Any:
        signature = result(*arguments)

        def typer(typing_context: Any, *given: Any) -> Any:
            return signature, lambda context, builder, sig, args: generate(builder, context, args)

        names = ", ".join(f"a{i}" for i in range(len(arguments)))
        scope: dict[str, Any] = {"typer": typer}
        exec(f"def op(c, {names}): return typer(c, {names})", scope)
        scope["op"].__name__ = generate.__name__
        return intrinsic(scope["op"])

    return decorate


def constant(value: float) -> Any:
    """Sixteen times the same number."""
    return ir.Constant(FLOATS, [value] * LANES)


def pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def load(builder: Any, address: Any, kind: Any, align: int) -> Any:
    value = builder.load(pointer(builder, address, kind))
    value.align = align
    return value


def store(builder: Any, address: Any, value: Any, align: int) -> Any:
    builder.store(value, pointer(builder, address, value.type)).align = align


def splat(builder: Any, scalar: Any) -> Any:
    """A scalar in every lane."""
    kind = ir.VectorType(scalar.type, LANES)
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(INTS, [0] * LANES))


def call(builder: Any, name: str, kind: Any, *args: Any) -> Any:
    """A function of LLVM's by name."""
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [a.type for a in args]), name
    )
    return builder.call(function, args)


# --- memory ---


@operation(F32x16, types.int64)
def load_f32(b: Any, _: Any, a: Any) -> Any:
    return load(b, a[0], FLOATS, 4)


@operation(types.void, types.int64, F32x16)
def store_f32(b: Any, context: Any, a: Any) -> Any:
    store(b, a[0], a[1], 4)
    return context.get_dummy_value()


@operation(F32x16, types.int64)
def load_bf16(b: Any, _: Any, a: Any) -> Any:
    """Sixteen bfloat16 as float32: their bits are the upper half."""
    wide = b.zext(load(b, a[0], SHORTS, 2), INTS)
    return b.bitcast(b.shl(wide, ir.Constant(INTS, [16] * LANES)), FLOATS)


@operation(types.void, types.int64, F32x16)
def store_bf16(b: Any, context: Any, a: Any) -> Any:
    """Rounded to the nearest bfloat16, ties to even."""
    store(b, a[0], b.bitcast(b.fptrunc(a[1], _BF16S), SHORTS), 2)
    return context.get_dummy_value()


@operation(types.float32, types.int64)
def load_float(b: Any, _: Any, a: Any) -> Any:
    return load(b, a[0], FLOAT, 4)


@operation(types.void, types.int64, types.float32)
def store_float(b: Any, context: Any, a: Any) -> Any:
    store(b, a[0], a[1], 4)
    return context.get_dummy_value()


@operation(types.int64, types.int64)
def load_int(b: Any, _: Any, a: Any) -> Any:
    return load(b, a[0], I64, 8)


@operation(types.void, types.int64, types.int64)
def store_int(b: Any, context: Any, a: Any) -> Any:
    store(b, a[0], a[1], 8)
    return context.get_dummy_value()


@operation(types.int64, types.int64, types.int64)
def fetch_add(b: Any, _: Any, a: Any) -> Any:
    """Atomically add to the int64 at an address; what was there before."""
    return b.atomic_rmw("add", pointer(b, a[0], I64), a[1], "monotonic")


@operation(types.void, types.int64, types.int64)
def copy_16_bits(b: Any, context: Any, a: Any) -> Any:
    """to, from."""
    store(b, a[0], load(b, a[1], I16, 2), 2)
    return context.get_dummy_value()


@operation(types.void, types.int64, types.int64)
def copy_32_bits(b: Any, context: Any, a: Any) -> Any:
    """to, from; either may lie on any even address."""
    store(b, a[0], load(b, a[1], I32, 2), 2)
    return context.get_dummy_value()


# --- arithmetic ---


@operation(F32x16, types.float32)
def fill(b: Any, _: Any, a: Any) -> Any:
    return splat(b, a[0])


@operation(F32x16, F32x16, F32x16)
def add(b: Any, _: Any, a: Any) -> Any:
    return b.fadd(a[0], a[1])


@operation(F32x16, F32x16, F32x16)
def sub(b: Any, _: Any, a: Any) -> Any:
    return b.fsub(a[0], a[1])


@operation(F32x16, F32x16, F32x16)
def mul(b: Any, _: Any, a: Any) -> Any:
    return b.fmul(a[0], a[1])


@operation(F32x16, F32x16, F32x16)
def div(b: Any, _: Any, a: Any) -> Any:
    return b.fdiv(a[0], a[1])


@operation(F32x16, F32x16, F32x16, F32x16)
def fma(b: Any, _: Any, a: Any) -> Any:
    """a * b + c, rounded once."""
    return call(b, "llvm.fma.v16f32", FLOATS, *a)


@operation(F32x16, F32x16, F32x16)
def maximum(b: Any, _: Any, a: Any) -> Any:
    return call(b, "llvm.maxnum.v16f32", FLOATS, *a)


@operation(F32x16, F32x16, F32x16)
def minimum(b: Any, _: Any, a: Any) -> Any:
    return call(b, "llvm.minnum.v16f32", FLOATS, *a)


@operation(F32x16, F32x16, types.int64, F32x16)
def first_lanes(b: Any, _: Any, a: Any) -> Any:
    """The first n lanes of one vector, the others of another."""
    count = splat(b, b.trunc(a[1], I32))
    here = b.icmp_signed("<", ir.Constant(INTS, list(range(LANES))), count)
    return b.select(here, a[0], a[2])


def _halve(b: Any, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Sixteen lanes to one: upper half onto lower, four times."""
    lanes = LANES
    while lanes > 1:
        lanes //= 2
        undefined = ir.Constant(value.type, ir.Undefined)
        masks = [
            ir.Constant(ir.VectorType(I32, lanes), list(range(start, start + lanes)))
            for start in (0, lanes)
        ]
        low, high = (b.shuffle_vector(value, undefined, mask) for mask in masks)
        value = combine(low, high)
    return b.extract_element(value, ir.Constant(I32, 0))


@operation(types.float32, F32x16)
def sum_lanes(b: Any, _: Any, a: Any) -> Any:
    return _halve(b, a[0], b.fadd)


@operation(types.float32, F32x16)
def max_lanes(b: Any, _: Any, a: Any) -> Any:
    return _halve(b, a[0], lambda x, y: b.select(b.fcmp_ordered(">", x, y), x, y))


@operation(F32x16, F32x16)
def _round(b: Any, _: Any, a: Any) -> Any:
    return call(b, "llvm.rint.v16f32", FLOATS, a[0])


@operation(F32x16, F32x16)
def _power_of_two(b: Any, _: Any, a: Any) -> Any:
    """2 ** n for whole n in -126..127: n goes into the exponent's bits."""
    biased = b.add(b.fptosi(a[0], INTS), ir.Constant(INTS, [127] * LANES))
    return b.bitcast(b.shl(biased, ir.Constant(INTS, [23] * LANES)), FLOATS)


_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4


@njit
def exp(x: Any) -> Any:
    """e ** x to 2 units in the last place for x in -87..88, and clamped outside.

    Range reduction and minimax polynomial of Cephes' expf (Moshier 1989).
    """
    x = minimum(maximum(x, fill(-87.0)), fill(88.0))
    n = _round(mul(x, fill(_LOG2_E)))
    r = fma(n, fill(-_LN2_HIGH), x)
    r = fma(n, fill(-_LN2_LOW), r)
    p = fma(fill(1.9875691500e-4), r, fill(1.3981999507e-3))
    p = fma(p, r, fill(8.3334519073e-3))
    p = fma(p, r, fill(4.1665795894e-2))
    p = fma(p, r, fill(1.6666665459e-1))
    p = fma(p, r, fill(5.0000001201e-1))
    p = fma(p, mul(r, r), add(r, fill(1.0)))
    return mul(p, _power_of_two(n))


@operation(types.int64, types.voidptr)
def address_of(b: Any, _: Any, a: Any) -> Any:
    return b.ptrtoint(a[0], I64)
