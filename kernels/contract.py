"""What a kernel may be given: per argument dtypes, shape, strides, and whom it must agree with.

A kernel is compiled for pointer types. It cannot see what it was handed: an int32 buffer behind an
int64 pointer is read two elements at a time and past its end, and no byte is wrong. So a launcher
checks its contract before it launches, and nothing is ever cast in silence. What has passed once is
found again by its dtypes, shapes, strides and devices (`tests/bench/contract_cost.py` measures it).

No torch in here: what is checked is read off the argument, so that a description of a tensor
(`TensorInfo`) is checked like a tensor, in processes that have no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kernels import contract_checks as checks
from kernels.contract_args import Arg, ContractError, Rule, TensorInfo, TensorLike, dtype_name

__all__ = ["Arg", "Contract", "ContractChoice", "ContractError", "Rule", "TensorInfo", "TensorLike"]

_REMEMBERED = 4096  # shapes of an engine repeat; a fuzzer's must not gather without end

Value = TensorLike | int | None
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Contract:
    """All that an op demands. sizes: plain numbers given beside the tensors, such as heads or k."""

    op: str
    args: tuple[Arg, ...]
    sizes: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    _passed: dict[tuple[Any, ...], Sizes] = field(default_factory=dict, repr=False, compare=False)

    def check(self, **given: Value) -> Sizes:
        """The sizes that the shapes bind, by name. ContractError: one line with op, argument,
        found, expected, the argument that it must match, and what to do."""
        key = _key(given)
        sizes = None if key is None else self._passed.get(key)
        if sizes is None:
            sizes = self._examine(given)
            self._remember(key, sizes)
        return sizes

    def arg(self, name: str) -> Arg:
        """The argument of that name."""
        return next(arg for arg in self.args if arg.name == name)

    def _examine(self, given: Mapping[str, Value]) -> Sizes:
        numbers = checks.numbers(self.op, self.args, self.sizes, given)
        present = checks.tensors(self.op, self.args, given)
        checks.check_dtypes(self.op, self.args, present)
        checks.check_devices(self.op, present)
        sizes = checks.bind(self.op, self.args, numbers, present)
        checks.check_layouts(self.op, self.args, present)
        for rule in self.rules:
            if not rule.holds(sizes, frozenset(present)):
                raise ContractError(f"{self.op}: {rule.text.format(**sizes)}")
        return MappingProxyType(sizes)

    def _remember(self, key: tuple[Any, ...] | None, sizes: Sizes) -> None:
        if len(self._passed) >= _REMEMBERED:
            self._passed.clear()
        if key is not None:
            self._passed[key] = sizes


@dataclass(frozen=True, slots=True)
class ContractChoice:
    """A contract for each dtype that one argument may have, where shapes differ with it."""

    op: str
    by: str
    contracts: Mapping[str, Contract]

    def check(self, **given: Value) -> Sizes:
        """As Contract.check, by the contract that belongs to the deciding argument's dtype. What
        is None counts as left out, since not every contract knows it."""
        decider: Any = given.get(self.by)
        name = dtype_name(decider) if hasattr(decider, "dtype") else None
        contract = None if name is None else self.contracts.get(name)
        if contract is None:
            found = f"is {name}" if name else "is missing"
            allowed = checks.either(tuple(self.contracts))
            raise ContractError(f"{self.op}: {self.by} {found}, must be {allowed}: pass such a one")
        return contract.check(**{n: v for n, v in given.items() if v is not None})


def _key(given: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """All that a check depends on; None where an argument is neither tensor, number nor None."""
    try:
        facts = [
            v if v is None or type(v) is int else (v.dtype, v.shape, v.stride(), v.device)
            for v in given.values()
        ]
    except (AttributeError, TypeError, RuntimeError):
        return None
    return (*given, *facts)
