"""From columns to plotly's lists: rounded, since digits nobody sees are bytes on every update."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

Figure = dict[str, Any]
_NICE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def numbers(values: Iterable[Any], digits: int = 4, scale: float = 1.0) -> list[float | None]:
    """Each value times scale to so many significant digits; NULL and NaN become None."""
    form = f".{digits}g"
    return [None if v is None else float(format(v * scale, form)) for v in plain(values)]


def places(values: Iterable[Any], decimals: int = 3) -> list[float | None]:
    """Each value to so many decimals, for positions on an axis of fixed range."""
    return [None if v is None else round(v, decimals) for v in plain(values)]


def plain(values: Iterable[Any]) -> list[float | None]:
    """Floats; NULL and NaN become None. Asking pandas about each of a column's would cost most."""
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "fiu":
        return [None if v != v else float(v) for v in np.asarray(values).tolist()]
    return [known(v) for v in values]


def decimals(span_s: float) -> int:
    """Decimals that a place on an axis of that length needs: a ten-thousandth of it, 3 or more."""
    return max(3, 4 - math.floor(math.log10(span_s))) if span_s > 0 else 3


def significant(value: float, digits: int) -> float:
    """Value to so many significant digits."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dicts by column name, of Python's own types."""
    names = [str(name) for name in frame.columns]
    rows = frame.to_numpy(dtype=object).tolist()
    return [dict(zip(names, row, strict=True)) for row in rows]


def known(value: Any) -> float | None:
    """A float, or None for NULL and NaN."""
    if isinstance(value, float):
        return None if value != value else float(value)
    return None if value is None or pd.isna(value) else float(value)


def nice_ceiling(value: float) -> float:
    """The next round number: axis ends that seldom change don't move the page."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(n * power for n in _NICE if n * power >= value * (1 - 1e-9))


def detail(text: Any) -> dict[str, Any]:
    """The JSON of an event; anything else is an empty dict."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
