"""The generated load as one choice: off, a number of streams, a rate, or the workload's own."""

from __future__ import annotations

import re
from dataclasses import dataclass

OFF = "no load"
OWN = "its own arrivals"
STREAMS = (1, 2, 4, 8, 10, 16, 24, 32, 48, 64)
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
MAX_STREAMS = 512


class ArrivalsError(ValueError):
    """Text that names no load; the message says what does."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """concurrency: closed loop; rate: open, requests/s; neither: off or the workload's own."""

    off: bool = False
    concurrency: int | None = None
    rate: float | None = None

    def __str__(self) -> str:
        if self.off:
            return OFF
        if self.concurrency is not None:
            return "1 stream" if self.concurrency == 1 else f"{self.concurrency} streams"
        return OWN if self.rate is None else f"{self.rate:g} requests/s"


def parse(text: str) -> Arrivals:
    """ "8", "8 streams", "2.5/s", "2 requests/s", or one of the fixed choices."""
    words = text.strip().lower()
    if words in (OFF, "off", "0", "0 streams"):
        return Arrivals(off=True)
    if words == OWN:
        return Arrivals()
    if found := re.fullmatch(r"(\d+)\s*(streams?)?", words):
        if int(found[1]) > MAX_STREAMS:
            raise ArrivalsError(f"{found[1]} streams are too many: use 1 to {MAX_STREAMS}")
        return Arrivals(concurrency=int(found[1]))
    found = re.fullmatch(r"(\d*\.?\d+)\s*(?:requests?)?\s*/\s*s", words)
    if found and float(found[1]) > 0:
        return Arrivals(rate=float(found[1]))
    raise ArrivalsError(f'"{text}" is no load: write "8 streams", "2 requests/s" or "{OFF}"')


def choices(actual: Arrivals) -> list[str]:
    """What the control offers, with the engine's real setting among it."""
    offered = [Arrivals(off=True), *(Arrivals(concurrency=n) for n in STREAMS)]
    offered += [*(Arrivals(rate=r) for r in RATES), Arrivals()]
    if actual not in offered:
        offered.insert(1, actual)
    return [str(a) for a in offered]
