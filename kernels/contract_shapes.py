"""Sizes of dimensions as a contract writes them: "rows", 64, "2*dim", "heads + 2*kv_heads", "k/32".

A dimension is a sum of terms, a term a fraction times a product of names. Names are bound to the
sizes found; where one name is left, it is solved for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod

Dimension = str | int
_FACTOR = re.compile(r"\d+|[a-z_][a-z_0-9]*")


@dataclass(frozen=True, slots=True)
class Term:
    """factor times the product of the named sizes."""

    factor: Fraction
    names: tuple[str, ...]

    def value(self, sizes: Mapping[str, int]) -> Fraction:
        return self.factor * prod(sizes[name] for name in self.names)


def _term(text: str) -> Term:
    product, _, divisor = text.strip().partition("/")
    factors = [part.strip() for part in product.split("*")]
    if not all(_FACTOR.fullmatch(part) for part in factors):
        raise ValueError(f"{text!r} is no product of names and numbers")
    numbers = prod(int(part) for part in factors if part.isdigit())
    names = tuple(part for part in factors if not part.isdigit())
    return Term(Fraction(numbers, int(divisor or 1)), names)


@cache
def terms(dimension: Dimension) -> tuple[Term, ...]:
    """The sum that a dimension stands for. ValueError for anything else."""
    return tuple(_term(part) for part in str(dimension).split("+"))


def names_of(dimension: Dimension) -> tuple[str, ...]:
    return tuple(name for term in terms(dimension) for name in term.names)


def is_name(dimension: Dimension) -> bool:
    return isinstance(dimension, str) and dimension.isidentifier()


def size_of(dimension: Dimension, sizes: Mapping[str, int]) -> int | None:
    """What the dimension must be; None where a name is unbound or no whole number comes out."""
    if any(name not in sizes for name in names_of(dimension)):
        return None
    value = sum((term.value(sizes) for term in terms(dimension)), Fraction(0))
    return int(value) if value.denominator == 1 else None


def solve(dimension: Dimension, found: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """The one unbound name and its size, given the whole; None where that has no answer."""
    unbound = [name for name in names_of(dimension) if name not in sizes]
    if len(unbound) != 1:
        return None
    at_zero = _with(dimension, sizes, unbound[0], 0)
    slope = _with(dimension, sizes, unbound[0], 1) - at_zero
    value = (found - at_zero) / slope if slope else Fraction(-1)
    return (unbound[0], int(value)) if value >= 0 and value.denominator == 1 else None


def _with(dimension: Dimension, sizes: Mapping[str, int], name: str, size: int) -> Fraction:
    known = {**sizes, name: size}
    return sum((term.value(known) for term in terms(dimension)), Fraction(0))


def written(dimensions: Iterable[Dimension]) -> str:
    """[rows, 2*dim], as messages print it."""
    return f"[{', '.join(str(dimension) for dimension in dimensions)}]"
