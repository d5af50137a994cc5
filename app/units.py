"""Numbers for people: three significant figures with SI prefixes."""

from __future__ import annotations

import math

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
UNKNOWN = "–"


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def three(value: float | None) -> str:
    """Three significant figures without an exponent: 0.0123, 1.23, 12.3, 123, 1,230."""
    if value is None or not _known(value):
        return UNKNOWN
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    digits = 2 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(digits, 0)}f}"


def si(value: float | None, unit: str) -> str:
    """`si(9.89e14, "FLOP/s")` is "989 TFLOP/s"; None is a dash."""
    if value is None or not _known(value):
        return UNKNOWN
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale * 0.9995:
            return f"{three(value / scale)} {prefix}{unit}".rstrip()
    return f"{three(value)} {unit}".rstrip()


def duration(value_s: float | None) -> str:
    """`duration(0.0123)` is "12.3 ms"."""
    if value_s is None or not _known(value_s):
        return UNKNOWN
    if value_s == 0:
        return "0 ms"
    for scale, prefix in _SMALL:
        if abs(value_s) >= scale * 0.9995:
            return f"{three(value_s / scale)} {prefix}s"
    return f"{three(value_s * 1e9)} ns"


def tick(value: float, unit: str) -> str:
    """`tick(5e10, "B")` is "50 GB": as si, for the round numbers of an axis."""
    scale, prefix = next((s for s in _PREFIXES if abs(value) >= s[0] * 0.9995), _PREFIXES[-1])
    return f"{value / scale:g} {prefix}{unit}".rstrip()


def milliseconds(value_s: float | None) -> str:
    """`milliseconds(143e-6)` is "0.143 ms": for times that are compared with each other."""
    return UNKNOWN if value_s is None else f"{three(value_s * 1e3)} ms"


def percent(fraction: float | None) -> str:
    """`percent(0.823)` is "82.3%"."""
    if fraction is None or not _known(fraction):
        return UNKNOWN
    return f"{three(fraction * 100)}%"


def count(value: float | None) -> str:
    """A whole number with thousands separators."""
    if value is None or not _known(value):
        return UNKNOWN
    return f"{int(value):,}"
