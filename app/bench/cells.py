"""From a row of figures to the text of one cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Cell = Callable[[Row], str]


def _known(value: Any, text: Callable[[Any], str]) -> str:
    return "not known" if value is None else text(value)


def text(key: str) -> Cell:
    """The value itself."""
    return lambda row: _known(row[key], str)


def number(key: str, form: str = ".4g", scale: float = 1) -> Cell:
    """One figure, scaled."""
    return lambda row: _known(row[key], lambda v: f"{v * scale:{form}}")


def percent(key: str, digits: int = 1) -> Cell:
    """A share."""
    return number(key, f".{digits}%")


def spread(key: str, form: str = ".4g", scale: float = 1) -> Cell:
    """Median (least .. greatest)."""

    def cell(row: Row) -> str:
        if row[key] is None:
            return "not known"
        middle, low, high = (row[k] * scale for k in (key, f"{key}_low", f"{key}_high"))
        return f"{middle:{form}} ({low:{form}} .. {high:{form}})"

    return cell


def idle(row: Row) -> str:
    """Whether the machine was ours alone while the row was measured."""
    return "yes" if row["clean"] else f"busy {row['foreign']:.0%}"


def costs(row: Row) -> str:
    """Milliseconds a token, by batch."""
    by_batch: dict[int, float] = row["cost_s_per_token"]
    return "  ".join(f"{batch}: {cost * 1e3:.2f}" for batch, cost in by_batch.items())
