"""The tokens of a window: when each came, and the gap before it, in one pass over `tokens`.

Gaps are those of the view `itl`, whose joins would take most of an update of the Live page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from telemetry.clock import NS_PER_S
from telemetry.queries.answers import running_clock
from telemetry.reader import Reader

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# A gap that begins before the window seldom begins longer before it.
LOOK_BACK_NS = NS_PER_S

_SHOWN = """
SELECT request_id, "index", t_ns FROM tokens
WHERE run_id = $run AND t_ns > $start AND t_ns <= $end"""

_BEFORE = """
WITH wanted AS (SELECT unnest($ids::BIGINT[]) AS request_id, unnest($at::BIGINT[]) AS "index")
SELECT request_id, t_ns FROM tokens JOIN wanted USING (request_id, "index")
WHERE run_id = $run AND t_ns <= $start AND request_id BETWEEN $low AND $high"""

_PAUSES = """
SELECT start_ns, end_ns, paused_before_ns FROM pauses WHERE run_id = $run ORDER BY start_ns"""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens that came after start_ns and by end_ns (monotonic), each with its gap.

    gap_s: time since the token before it of the same request, pauses left out; NaN for the first.
    """

    t_ns: Ints
    gap_s: Floats


def pauses(reader: Reader, run_id: str) -> Ints:
    """Rows of the view `pauses`: (start_ns, end_ns, paused_before_ns), oldest first."""
    sql = "SELECT count(*) FROM events WHERE run_id = $run AND kind = 'pause'"
    if not reader.value(sql, {"run": run_id}):
        return np.zeros((0, 3), np.int64)
    return reader.frame(_PAUSES, {"run": run_id}).to_numpy(dtype=np.int64)


def tokens(reader: Reader, run_id: str, start_ns: int, end_ns: int, paused: Ints) -> Tokens:
    """paused: as `pauses` gives them."""
    frame = reader.frame(_SHOWN, {"run": run_id, "start": start_ns - LOOK_BACK_NS, "end": end_ns})
    if frame.empty:
        return Tokens(np.zeros(0, np.int64), np.zeros(0))
    names = ("request_id", "index", "t_ns")
    ids, index, t_ns = _by_request(*(frame[c].to_numpy(dtype=np.int64) for c in names))
    shown = t_ns > start_ns
    begins = np.diff(ids, prepend=ids[0] - 1) != 0
    before_ns, known = np.roll(t_ns, 1), ~begins & (np.diff(index, prepend=index[0]) == 1)
    earlier = np.flatnonzero(shown & begins & (index > 0))
    found = _before(reader, run_id, start_ns, ids[earlier].tolist(), index[earlier].tolist())
    for i in earlier.tolist():
        if int(ids[i]) in found:
            before_ns[i], known[i] = found[int(ids[i])], True
    gaps_ns = running_clock(t_ns, paused) - running_clock(before_ns, paused)
    return Tokens(t_ns[shown], np.where(known, gaps_ns / 1e9, np.nan)[shown])


def _by_request(ids: Ints, index: Ints, t_ns: Ints) -> tuple[Ints, Ints, Ints]:
    """Each request's tokens together, in order.

    They are stored as they came, so that a stable sort by request does: sixteen bits of it take a
    tenth of the time of sorting by both.
    """
    offset, place = ids - ids.min(), (ids << 32) + index
    short = bool(offset.max() < 1 << 16)
    order = np.argsort(offset.astype(np.uint16), kind="stable") if short else np.argsort(place)
    if np.any(np.diff(place[order]) <= 0):
        order = np.argsort(place)
    return ids[order], index[order], t_ns[order]


def _before(
    reader: Reader, run_id: str, start_ns: int, ids: list[int], index: list[int]
) -> dict[int, int]:
    """When the token before came, ns, of those whose place in an answer is `index`, by request."""
    if not ids:
        return {}
    ends = {"low": min(ids), "high": max(ids), "start": start_ns}
    at = [i - 1 for i in index]
    rows = reader.rows(_BEFORE, {"run": run_id, "ids": ids, "at": at, **ends})
    return {int(request): int(t_ns) for request, t_ns in rows}


def per_bin(found: Tokens, end_ns: int, width_s: float, bins: int) -> pd.DataFrame:
    """tokens and gap_s, the worst gap that ended in it (NaN: none), of each bin, the oldest first.

    A bin is width_s long; the newest one ends at end_ns. The columns are those that
    `live_seconds.per_second` takes.
    """
    bin_of = (end_ns - found.t_ns) // math.ceil(width_s * 1e9)
    count = np.bincount(bin_of, minlength=bins)[:bins]
    worst = np.full(bins, -np.inf)
    gaps = ~np.isnan(found.gap_s) & (bin_of < bins)
    np.maximum.at(worst, bin_of[gaps], found.gap_s[gaps])
    worst[np.isinf(worst)] = np.nan
    return pd.DataFrame({"tokens": count[::-1], "gap_s": worst[::-1]})
