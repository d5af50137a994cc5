"""Calls made from a contract: all arguments right, and the same with one thing wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernels.contract import Arg, Contract, ContractChoice
from kernels.contract_shapes import is_name, names_of, size_of
from kernels.registry import contracts

_NORMS = {"rows": 3, "dim": 64, "heads": 6, "kv_heads": 2, "max_positions": 9}
_PAGES = {"cache_slots": 32, "seqs": 5, "max_blocks": 2, "block_size": 16}
_EXPERTS = {"k": 2, "experts": 8, "vocab": 11, "x_rows": 3, "inner": 33, "outer": 17}
SIZES: Mapping[str, int] = {**_NORMS, **_PAGES, **_EXPERTS, "n": 7}
QUANTISED = {**SIZES, "k": 96}
DTYPES = tuple(
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16"),
        *("float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64"),
    )
)
Call = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One contract, and sizes that fit it. launcher: by whose name it is found."""

    launcher: str
    contract: Contract
    label: str = ""

    @property
    def sizes(self) -> Mapping[str, int]:
        return QUANTISED if self.launcher == "quantised_linear" else SIZES

    def __str__(self) -> str:
        return self.launcher + self.label


def cases() -> Iterator[Case]:
    for launcher, contract in contracts().items():
        if isinstance(contract, ContractChoice):
            for dtype, chosen in contract.contracts.items():
                yield Case(launcher, chosen, f" {dtype}")
        else:
            yield Case(launcher, contract)


def right(case: Case) -> Call:
    """All arguments as the contract wants them, the optional ones too."""
    numbers = {name: case.sizes[name] for name in case.contract.sizes}
    return {arg.name: tensor(case, arg) for arg in case.contract.args} | numbers


def tensor(case: Case, arg: Arg, dtype: torch.dtype | None = None) -> torch.Tensor:
    shape = [size_of(dimension, case.sizes) for dimension in arg.shape]
    assert None not in shape
    return torch.zeros(shape, dtype=dtype or getattr(torch, arg.dtypes[0]))  # type: ignore[arg-type]


def wrong_dtypes(case: Case) -> Iterator[tuple[Arg, torch.dtype]]:
    """Every dtype that an argument may not have while all others stay."""
    for arg in case.contract.args:
        now = getattr(torch, arg.dtypes[0])
        pairs = arg.same_as is not None or any(a.same_as == arg.name for a in case.contract.args)
        for dtype in DTYPES:
            allowed = str(dtype).removeprefix("torch.") in arg.dtypes
            exempt = str(dtype).removeprefix("torch.") in arg.unless
            if dtype != now and not exempt and (pairs or not allowed):
                yield arg, dtype


def wrong_shapes(case: Case) -> Iterator[tuple[Arg, tuple[int, ...]]]:
    """One dimension more; and each dimension one larger, where another argument has a say in it."""
    for arg in case.contract.args:
        shape = tuple(tensor(case, arg).shape)
        yield arg, (*shape, 1)
        for i in range(len(arg.shape)):
            if _shared(case.contract, arg, i):
                yield arg, (*shape[:i], shape[i] + 1, *shape[i + 1 :])


def _shared(contract: Contract, arg: Arg, i: int) -> bool:
    """Whether the size is fixed, or also somebody else's."""
    dimension = arg.shape[i]
    names = set(names_of(dimension))
    elsewhere = {
        name
        for other in contract.args
        for j, d in enumerate(other.shape)
        if (other.name, j) != (arg.name, i)
        for name in names_of(d)
    }
    return not is_name(dimension) or bool(names & (elsewhere | set(contract.sizes)))


def wrong_strides(case: Case) -> Iterator[tuple[Arg, torch.Tensor]]:
    """The right shape and dtype, every element two apart."""
    for arg in case.contract.args:
        whole = tensor(case, arg)
        wide = torch.zeros(*whole.shape[:-1], 2 * whole.shape[-1], dtype=whole.dtype)
        yield arg, wide[..., ::2]
