"""Sizes of dimensions as a contract writes them: "rows", 64, "2*dim", "heads + 2*kv_heads", "k/32".

A dimension is a sum of terms, a term a whole number times a product of names, over another whole
number. Names are bound to the sizes found; where one name is left, it is solved for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

Dimension = str | int
_FACTOR = re.compile(r"\d+|[a-z_][a-z_0-9]*")


@dataclass(frozen=True, slots=True)
class Term:
    """times * the product of the named sizes / over."""

    times: int
    names: tuple[str, ...]
    over: int

    def size(self, sizes: Mapping[str, int]) -> int | None:
        """None where no whole number comes out."""
        whole, rest = divmod(self.times * prod([sizes[name] for name in self.names]), self.over)
        return None if rest else whole


def _term(text: str) -> Term:
    product, _, divisor = text.strip().partition("/")
    factors = [part.strip() for part in product.split("*")]
    if not all(_FACTOR.fullmatch(part) for part in factors):
        raise ValueError(f"{text!r} is no product of names and numbers")
    numbers = prod(int(part) for part in factors if part.isdigit())
    names = tuple(part for part in factors if not part.isdigit())
    return Term(numbers, names, int(divisor or 1))


@cache
def terms(dimension: Dimension) -> tuple[Term, ...]:
    """The sum that a dimension stands for. ValueError for anything else."""
    return tuple(_term(part) for part in str(dimension).split("+"))


@cache
def names_of(dimension: Dimension) -> tuple[str, ...]:
    """The names in a dimension."""
    return tuple(name for term in terms(dimension) for name in term.names)


@cache
def is_name(dimension: Dimension) -> bool:
    """Whether a dimension is a name alone, which any size fits."""
    return isinstance(dimension, str) and dimension.isidentifier()


def size_of(dimension: Dimension, sizes: Mapping[str, int]) -> int | None:
    """What the dimension must be; None where a name is unbound or no whole number comes out."""
    if isinstance(dimension, int) or is_name(dimension):
        return dimension if isinstance(dimension, int) else sizes.get(dimension)
    if any(name not in sizes for name in names_of(dimension)):
        return None
    parts = [term.size(sizes) for term in terms(dimension)]
    return None if None in parts else sum(part for part in parts if part is not None)


def solve(dimension: Dimension, found: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """The one unbound name and its size, given the whole; None where that has no answer."""
    unbound = [name for name in names_of(dimension) if name not in sizes]
    if len(unbound) != 1:
        return None
    known = [term.size(sizes) for term in terms(dimension) if unbound[0] not in term.names]
    asked = next(term for term in terms(dimension) if unbound[0] in term.names)
    slope = asked.times * prod([sizes[name] for name in asked.names if name in sizes])
    left = (found - sum(part or 0 for part in known)) * asked.over
    if slope == 0 or left < 0 or left % slope:
        return None
    return unbound[0], left // slope


def written(dimensions: Iterable[Dimension]) -> str:
    """[rows, 2*dim], as messages print it."""
    return f"[{', '.join([str(dimension) for dimension in dimensions])}]"
