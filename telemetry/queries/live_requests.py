"""The requests of a window as they stand at its end, with what they have said last.

Latencies are those of the view `request_latency`, whose joins with `pauses` take ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from telemetry.queries.answers import running_clock
from telemetry.queries.live_tokens import Floats, Ints
from telemetry.reader import Reader
from telemetry.views import FOREVER_NS

Strings = npt.NDArray[np.str_]

_REQUESTS = """
SELECT request_id, label, prompt_tokens, cached_tokens, output_tokens, preemptions,
       finish_reason::VARCHAR AS finish_reason, arrived_ns,
       coalesce(admitted_ns, -1) AS admitted_ns,
       coalesce(first_token_ns, -1) AS first_ns, coalesce(finished_ns, -1) AS finished_ns
FROM requests WHERE run_id = $run AND arrived_ns <= $until
AND (finish_reason IS NULL OR finished_ns > $start)"""

_TAILS = """
SELECT request_id, max("index") + 1 AS made, max_by(token_id, "index", $most) AS ids FROM tokens
WHERE run_id = $run AND t_ns > $start AND t_ns <= $until AND list_contains($ids, request_id)
GROUP BY request_id"""

_GIVEN = ("label", "prompt_tokens", "cached_tokens", "output_tokens")
TAIL_TOKENS = 40
_COMPLETED = ("stop", "length")


@dataclass(frozen=True, slots=True)
class Tail:
    """How many tokens a request has made, and the newest of them."""

    made: int
    token_ids: list[int]


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of a stretch, a column each: most are only counted.

    state is waiting, prefill (admitted, no token yet), decode, finished or what else ended it; done
    says whether it completed. waited_s is its queueing by the end; ttft_s and tpot_s are NaN until
    they are known, and tpot_s with a single token. first_ns and finished_ns are -1 before that.
    given: label, prompt_tokens, cached_tokens and output_tokens of their rows.
    """

    request_id: Ints
    state: Strings
    done: npt.NDArray[np.bool_]
    waited_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    first_ns: Ints
    finished_ns: Ints
    given: dict[str, npt.NDArray[np.object_]]

    def __len__(self) -> int:
        return len(self.request_id)

    def row(self, at: int) -> dict[str, Any]:
        """One of them, with what is given in its row."""
        made = {n: getattr(self, n)[at].item() for n in ("waited_s", "ttft_s", "tpot_s")}
        given = {name: column[at] for name, column in self.given.items()}
        return {
            "request_id": int(self.request_id[at]),
            "state": str(self.state[at]),
            **made,
            **given,
        }


def requests(
    reader: Reader,
    run_id: str,
    start_ns: int,
    end_ns: int,
    paused: Ints,
    until_ns: int = FOREVER_NS,
) -> Requests:
    """Those that waited or ran after start_ns, as they stood at until_ns (monotonic).

    Who waits then has waited until end_ns. paused: `live_tokens.pauses`.
    """
    frame = reader.frame(_REQUESTS, {"run": run_id, "start": start_ns, "until": until_ns})
    arrived, admitted, first, finished = (
        _until(frame[f"{name}_ns"], until_ns)
        for name in ("arrived", "admitted", "first", "finished")
    )
    reasons = frame["finish_reason"].to_numpy(dtype=object)
    waited_until = np.where(admitted < 0, np.maximum(arrived, end_ns), admitted)
    made = frame["output_tokens"].to_numpy(dtype=np.int64, na_value=0)
    done = (finished >= 0) & np.isin(reasons.astype(str), _COMPLETED)
    decode_s = np.where(done & (made > 1), _between_s(first, finished, paused), np.nan)
    return Requests(
        request_id=frame["request_id"].to_numpy(dtype=np.int64),
        state=_states(reasons, admitted, first, finished, done),
        done=done,
        waited_s=_between_s(arrived, waited_until, paused),
        ttft_s=np.where(first < 0, np.nan, _between_s(arrived, first, paused)),
        tpot_s=decode_s / np.maximum(made - 1, 1),
        first_ns=first,
        finished_ns=finished,
        given={name: frame[name].to_numpy(dtype=object) for name in _GIVEN},
    )


def _until(instants: pd.Series[Any], until_ns: int) -> Ints:
    """What came later has not come yet."""
    values = instants.to_numpy(dtype=np.int64)
    return np.where(values > until_ns, -1, values)


def _between_s(start_ns: Ints, end_ns: Ints, paused: Ints) -> Floats:
    ran: Floats = (running_clock(end_ns, paused) - running_clock(start_ns, paused)) / 1e9
    return ran


def _states(
    reasons: npt.NDArray[np.object_],
    admitted: Ints,
    first: Ints,
    finished: Ints,
    done: npt.NDArray[np.bool_],
) -> Strings:
    running = np.where(first >= 0, "decode", np.where(admitted >= 0, "prefill", "waiting"))
    states: Strings = np.where(
        finished < 0, running, np.where(done, "finished", reasons.astype(str))
    )
    return states


def tails(
    reader: Reader, run_id: str, start_ns: int, ids: Sequence[int], until_ns: int = FOREVER_NS
) -> dict[int, Tail]:
    """By request, what it made by until_ns, and the last TAIL_TOKENS that came after start_ns."""
    if not ids:
        return {}
    params = {"run": run_id, "start": start_ns, "until": until_ns, "ids": list(ids)}
    rows = reader.rows(_TAILS, params | {"most": TAIL_TOKENS})
    return {int(request): Tail(int(made), newest[::-1]) for request, made, newest in rows}


def reported(reader: Reader, run_id: str) -> bool:
    """Whether the source tells of single requests at all."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM requests WHERE run_id = $run LIMIT 1)"
    return bool(reader.value(sql, {"run": run_id}))
