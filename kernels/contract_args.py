"""The words of a contract: arguments, rules, and what a tensor looks like without its contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kernels.contract_shapes import Dimension


class ContractError(TypeError):
    """An argument is not what the kernel was compiled for. One line; nothing was launched."""


class TensorLike(Protocol):
    """What a contract reads of an argument: a torch.Tensor has it, and so has TensorInfo."""

    @property
    def dtype(self) -> Any: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def device(self) -> Any: ...
    def stride(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor without its contents. Strides count elements; None: contiguous."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    device: str = "cpu"

    def stride(self) -> tuple[int, ...]:
        return contiguous_strides(self.shape) if self.strides is None else self.strides


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of an op.

    dtypes: torch's names of those allowed. An output that is not given is allocated as the first.
    shape: names bind to sizes and agree across arguments; "2*dim", "k/32", "heads + 2*kv_heads".
    same_as: the argument whose dtype it must have; `unless` names dtypes that may differ.
    layout: "contiguous", or "rows": elements of the last dimension are adjacent, rows may be apart.
    optional: None is allowed. written: the kernel writes into it, so a converted copy is no help.
    """

    name: str
    dtypes: tuple[str, ...]
    shape: tuple[Dimension, ...] = ()
    same_as: str | None = None
    unless: tuple[str, ...] = ()
    layout: str = "contiguous"
    optional: bool = False
    written: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A demand on several arguments at once.

    text: what must hold and what to do, with {sizes} filled in. holds: of the bound sizes and the
    names of the tensors given.
    """

    text: str
    holds: Callable[[Mapping[str, int], frozenset[str]], bool]


def dtype_name(tensor: TensorLike) -> str:
    """int64, whether torch wrote torch.int64 or a description int64."""
    return str(tensor.dtype).removeprefix("torch.")


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a contiguous tensor, as torch has them (a size 0 counts as 1)."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if shape else ()


def lies_as(layout: str, tensor: TensorLike) -> bool:
    """Whether strides fit the layout. A dimension of one element may have any."""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    if 0 in shape or not shape:
        return True
    if layout == "rows":
        return shape[-1] == 1 or strides[-1] == 1
    needed = contiguous_strides(shape)
    return all(a == b for n, a, b in zip(shape, strides, needed, strict=True) if n != 1)
