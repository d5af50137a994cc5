"""A contract held against arguments, in the order in which a person would look.

Present, dtype, agreement of dtypes, device, shape, strides, and what the op demands beside. The
first fault ends it with one line: op, argument, found, expected, whom it must match, what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.contract_args import (
    Arg,
    ContractError,
    TensorLike,
    contiguous_strides,
    dtype_name,
    lies_as,
)
from kernels.contract_shapes import is_name, names_of, size_of, solve, written

Tensors = dict[str, TensorLike]
_READ = ("dtype", "shape", "stride", "device")


def either(names: Sequence[str]) -> str:
    """int32, or int32 or int64."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def numbers(
    op: str, args: Sequence[Arg], sizes: Sequence[str], given: Mapping[str, Any]
) -> dict[str, int]:
    """The plain numbers among the arguments. ContractError for an argument that the op lacks."""
    known = [*(arg.name for arg in args), *sizes]
    for name in given:
        if name not in known:
            raise ContractError(f"{op}: takes no {name}; its arguments are {', '.join(known)}")
    for name in sizes:
        value = given.get(name)
        if type(value) is not int or value < 1:
            raise ContractError(
                f"{op}: {name} is {value!r}, must be a whole number from 1: pass one"
            )
    return {name: given[name] for name in sizes}


def tensors(op: str, args: Sequence[Arg], given: Mapping[str, Any]) -> Tensors:
    """Those arguments that are there. ContractError for one that is missing or no tensor."""
    present: Tensors = {}
    for arg in args:
        value = given.get(arg.name)
        if value is None and not arg.optional:
            raise ContractError(f"{op}: {arg.name} is missing, {_expected(arg)}: pass it")
        if value is not None and not all(hasattr(value, name) for name in _READ):
            kind = f"{arg.name} is of type {type(value).__name__}"
            raise ContractError(f"{op}: {kind}, {_expected(arg)}: pass a tensor")
        if value is not None:
            present[arg.name] = value
    return present


def _expected(arg: Arg) -> str:
    return f"must be a tensor of {either(arg.dtypes)}, shape {written(arg.shape)}"


def check_dtypes(op: str, args: Sequence[Arg], present: Tensors) -> None:
    for arg in args:
        if arg.name in present:
            found = dtype_name(present[arg.name])
            if found not in arg.dtypes:
                raise _wrong_dtype(op, arg, found, either(arg.dtypes))
    for arg in args:
        if arg.name in present and arg.same_as is not None:
            other = next(other for other in args if other.name == arg.same_as)
            _check_agreement(op, arg, other, present)


def _check_agreement(op: str, arg: Arg, other: Arg, present: Tensors) -> None:
    found = dtype_name(present[arg.name])
    given = present.get(other.name)
    expected = other.dtypes[0] if given is None else dtype_name(given)
    if found != expected and found not in arg.unless:
        absent = f", allocated as {expected} when not given" if given is None else ""
        also = f" (or {either(arg.unless)})" if arg.unless else ""
        raise _wrong_dtype(op, arg, found, expected, f" like {other.name}{absent}{also}")


def _wrong_dtype(op: str, arg: Arg, found: str, expected: str, like: str = "") -> ContractError:
    remedy = (
        "the kernel writes into it, so allocate it so"
        if arg.written
        else "convert it in the caller"
    )
    return ContractError(f"{op}: {arg.name} is {found}, must be {expected}{like}: {remedy}")


def check_devices(op: str, present: Tensors) -> None:
    """All tensors lie where the first one lies."""
    first = next(iter(present), "")
    for name, tensor in present.items():
        here, there = str(tensor.device), str(present[first].device)
        if here != there:
            raise ContractError(
                f"{op}: {name} is on {here}, must be on {there} like {first}: move it"
            )


def bind(
    op: str, args: Sequence[Arg], given: Mapping[str, int], present: Tensors
) -> dict[str, int]:
    """Sizes by name. The first argument that has a name decides it; the others must agree."""
    binding = _Binding(op, dict(given))
    here = [(arg, tuple(present[arg.name].shape)) for arg in args if arg.name in present]
    for arg, shape in here:
        binding.check_rank(arg, shape)
    for arg, shape in here:
        binding.bind_names(arg, shape)
    if any(not is_name(dimension) for arg, _ in here for dimension in arg.shape):
        for arg, shape in here * 2:  # a sum may need a name that another sum gives
            binding.solve_sums(arg, shape)
    for arg, shape in here:
        binding.check_sizes(arg, shape)
    return binding.sizes


class _Binding:
    def __init__(self, op: str, sizes: dict[str, int]) -> None:
        self.op = op
        self.sizes = sizes
        self.decided_by = dict.fromkeys(sizes, "the call")

    def check_rank(self, arg: Arg, shape: tuple[int, ...]) -> None:
        if len(shape) != len(arg.shape):
            raise ContractError(
                f"{self.op}: {arg.name} has shape {written(shape)}, must have "
                f"{written(arg.shape)}: reshape it"
            )

    def bind_names(self, arg: Arg, shape: tuple[int, ...]) -> None:
        for dimension, size in zip(arg.shape, shape, strict=True):
            if is_name(dimension):
                self._decide(str(dimension), size, arg)

    def solve_sums(self, arg: Arg, shape: tuple[int, ...]) -> None:
        for dimension, size in zip(arg.shape, shape, strict=True):
            if not is_name(dimension):
                answer = solve(dimension, size, self.sizes)
                if answer is not None:
                    self._decide(*answer, arg)

    def _decide(self, name: str, size: int, arg: Arg) -> None:
        if name not in self.sizes:
            self.sizes[name] = size
            self.decided_by[name] = arg.name

    def check_sizes(self, arg: Arg, shape: tuple[int, ...]) -> None:
        expected = [size_of(dimension, self.sizes) for dimension in arg.shape]
        if list(shape) != expected:
            wrong = [d for d, a, b in zip(arg.shape, shape, expected, strict=True) if a != b]
            raise ContractError(self._wrong_shape(arg, shape, expected, wrong))

    def _wrong_shape(
        self, arg: Arg, shape: tuple[int, ...], expected: list[int | None], wrong: list[Any]
    ) -> str:
        names = [name for dimension in wrong for name in names_of(dimension) if name in self.sizes]
        known = [f"{name} is {self.sizes[name]} by {self.decided_by[name]}" for name in names]
        sizes = written(["a whole number" if size is None else size for size in expected])
        because = f" ({', '.join(dict.fromkeys(known))})" if known else ""
        return (
            f"{self.op}: {arg.name} has shape {written(shape)}, must have {written(arg.shape)} = "
            f"{sizes}{because}: make them agree"
        )


def check_layouts(op: str, args: Sequence[Arg], present: Tensors) -> None:
    for arg in args:
        if arg.name in present and not lies_as(arg.layout, present[arg.name]):
            raise ContractError(_wrong_layout(op, arg, present[arg.name]))


def _wrong_layout(op: str, arg: Arg, tensor: TensorLike) -> str:
    shape = tuple(tensor.shape)
    needed = f"contiguous, strides {written(contiguous_strides(shape))}"
    if arg.layout == "rows":
        needed = "adjacent along the last dimension, its stride 1"
    remedy = "allocate it so" if arg.written else "call .contiguous() where it is made"
    return (
        f"{op}: {arg.name} has strides {written(tensor.stride())} for shape {written(shape)}, "
        f"must be {needed}: {remedy}"
    )
