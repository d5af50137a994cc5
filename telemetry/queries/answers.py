"""What a run answered, token by token: its hash and its gaps, in one pass over `tokens`.

A run may have tens of millions of tokens, so they come some requests at a time. The gaps are those
of the view `itl`, whose joins with `pauses` would take most of a long run's summary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.reader import Reader

PART_TOKENS = 2_000_000

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_SPAN = """
SELECT min(request_id), max(request_id), (SELECT count(*) FROM tokens WHERE run_id = $run)
FROM requests WHERE run_id = $run"""

_PART = """
SELECT request_id, "index", token_id, t_ns FROM tokens
WHERE run_id = $run AND request_id BETWEEN $first AND $last"""

_COMPLETED = """
SELECT request_id, number FROM (
  SELECT request_id, finish_reason, row_number() OVER (ORDER BY request_id) - 1 AS number
  FROM requests WHERE run_id = $run)
WHERE finish_reason IN ('stop', 'length') ORDER BY request_id"""

_PAUSES = """
SELECT start_ns, end_ns, paused_before_ns FROM pauses WHERE run_id = $run ORDER BY start_ns"""


@dataclass(frozen=True, slots=True)
class Answers:
    """sha256: see summary.outputs_sha256. gaps_s: all inter-token latencies, in no order."""

    sha256: str | None
    gaps_s: Floats


@dataclass(frozen=True, slots=True)
class _Part:
    """All tokens of requests `first` … `last`, by request and place in its output."""

    first: int
    last: int
    request_ids: Ints
    indexes: Ints
    token_ids: Ints
    t_ns: Ints


def read_answers(reader: Reader, run_id: str) -> Answers:
    """Every token of a run, once."""
    completed = reader.frame(_COMPLETED, {"run": run_id})
    numbers, ids = completed["number"].to_numpy(), completed["request_id"].to_numpy()
    pauses = reader.frame(_PAUSES, {"run": run_id}).to_numpy(dtype=np.int64)
    digest, gaps = hashlib.sha256(), [np.zeros(0)]
    for part in _parts(reader, run_id):
        gaps.append(_gaps_s(part, pauses))
        here = slice(*np.searchsorted(ids, (part.first, part.last + 1)))
        for number, tokens in zip(numbers[here], _outputs(part, ids[here]), strict=True):
            digest.update(np.array([number, len(tokens)], "<i8").tobytes() + tokens.tobytes())
    return Answers(digest.hexdigest() if len(ids) else None, np.concatenate(gaps))


def _parts(reader: Reader, run_id: str) -> Iterator[_Part]:
    """Of about PART_TOKENS tokens each."""
    first, end, count = reader.rows(_SPAN, {"run": run_id})[0]
    if first is None:
        return
    width = max(1, (end + 1 - first) * PART_TOKENS // max(count, PART_TOKENS))
    for start in range(first, end + 1, width):
        yield _part(reader, run_id, start, min(start + width - 1, end))


def _part(reader: Reader, run_id: str, first: int, last: int) -> _Part:
    frame = reader.frame(_PART, {"run": run_id, "first": first, "last": last})
    ids, indexes = (frame[name].to_numpy(dtype=np.int64) for name in ("request_id", "index"))
    order = np.argsort((ids - first << 32) + indexes)
    tokens, t_ns = (frame[name].to_numpy(dtype="<i8")[order] for name in ("token_id", "t_ns"))
    return _Part(first, last, ids[order], indexes[order], tokens, t_ns)


def _outputs(part: _Part, ids: Ints) -> Iterator[Ints]:
    """The token ids of each of these requests; of some there may be none."""
    starts, ends = (np.searchsorted(part.request_ids, ids, side) for side in ("left", "right"))
    return (part.token_ids[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True))


def _gaps_s(part: _Part, pauses: Ints) -> Floats:
    clock = running_clock(part.t_ns, pauses)
    follows = (np.diff(part.request_ids) == 0) & (np.diff(part.indexes) == 1)
    gaps_s: Floats = np.diff(clock)[follows] / 1e9
    return gaps_s


def running_clock(t_ns: Ints, pauses: Ints) -> Ints:
    """t_ns on the clock that stops during pauses (telemetry.views): what was paused is taken off.

    pauses: rows of the view `pauses` of one run, [n, (start_ns, end_ns, paused_before_ns)].
    """
    if not len(pauses):
        return t_ns
    starts, ends, before = pauses.T
    last = np.searchsorted(starts, t_ns, "right") - 1
    paused = before[last] + np.minimum(t_ns, ends[last]) - starts[last]
    return t_ns - np.where(last >= 0, paused, 0)
