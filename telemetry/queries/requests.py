"""What the Requests page shows: who waited, was computed and decoded when, and one request opened.

Times on axes are seconds before the end of the window; durations leave out the time paused, as in
`telemetry.views`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from telemetry.queries.islands import merged
from telemetry.queries.pauses import Pauses
from telemetry.reader import Params, Reader

MOST_REQUESTS = 200
MAX_SEGMENTS = 2_000
LIKE_STEPS = 4_000
_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"
_PROMPTS = "(s.prefill_tokens + s.recomputed_tokens + s.padded_prefill_tokens)"
_COMPLETED = ("stop", "length")
_COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "preemptions")
_INSTANTS = ("arrived", "admitted", "first_token", "finished")
_FIELDS = ("request_id", "label", "finish_reason", *_COUNTS, *(f"{n}_ns" for n in _INSTANTS))


def lived(
    reader: Reader, run_id: str, start_ns: int, end_ns: int, stopped: Pauses
) -> list[dict[str, Any]]:
    """Requests that waited, ran or ended between two instants, at most the newest 200 of them.

    Each as `one` has it, in order of request_id.
    """
    sql = f"""
    SELECT {", ".join(_FIELDS)} FROM requests WHERE run_id = $run AND arrived_ns <= $end
    AND coalesce(finished_ns, $end) >= $start ORDER BY request_id DESC LIMIT {MOST_REQUESTS}
    """
    found = _rows(reader, sql, {"run": run_id, "start": start_ns, "end": end_ns})
    return _told(reader, run_id, found[::-1], stopped)


def placed(rows: list[dict[str, Any]], end_ns: int, stopped: Pauses) -> pd.DataFrame:
    """Of `lived`, on the axis of a window that ends at end_ns.

    request_id, label, status (finished|running|waiting), finish_reason, prompt_tokens,
    cached_tokens, output_tokens, preemptions, arrived_s, admitted_s, first_token_s, finished_s (of
    the axis, NULL before they happen), queue_s, ttft_s, e2el_s, elapsed_s (until it finished or the
    window's end), own_prefill_s: of the steps that computed its prompt the part for its tokens.
    """
    told = [_placed(row, stopped, end_ns) for row in rows]
    return pd.DataFrame({name: [row[name] for row in told] for name in _SEEN})


_TIMES = (
    *(f"{name}_s" for name in _INSTANTS),
    *("queue_s", "ttft_s", "e2el_s", "own_prefill_s", "elapsed_s"),
)
_SEEN = ("request_id", "label", "finish_reason", *_COUNTS, "status", *_TIMES)


def _placed(row: dict[str, Any], stopped: Pauses, end_ns: int) -> dict[str, Any]:
    """A request on the axis of a window that ends at end_ns; unknown times are NaN."""
    finished, admitted = row["finished_ns"], row["admitted_ns"]
    until = end_ns if finished is None else min(finished, end_ns)
    times = {f"{n}_s": _before(row[f"{n}_ns"], end_ns) for n in _INSTANTS}
    times |= {"elapsed_s": stopped.ran(row["arrived_ns"], until)}
    running = "waiting" if admitted is None else "running"
    status = {"status": running if finished is None else "finished"}
    every = row | status | times
    return every | {name: np.nan for name in _TIMES if every[name] is None}


def _before(t_ns: int | None, end_ns: int) -> float | None:
    return None if t_ns is None else (t_ns - end_ns) / 1e9


def _rows(reader: Reader, sql: str, params: Params) -> list[dict[str, Any]]:
    """Rows with _FIELDS, as Python values: instants stay exact beside NULLs."""
    return [dict(zip(_FIELDS, row, strict=True)) for row in reader.rows(sql, params)]


def _told(
    reader: Reader, run_id: str, rows: list[dict[str, Any]], stopped: Pauses
) -> list[dict[str, Any]]:
    """Rows of `requests` with their latencies, as the view `request_latency` has them.

    And with own_prefill_s. While a request runs, output_tokens is what it has emitted so far.
    """
    own = _own_prefill_s(reader, run_id, [row["request_id"] for row in rows])
    made = _emitted(reader, run_id, [r["request_id"] for r in rows if r["finished_ns"] is None])
    return [
        row
        | _latencies(row, stopped)
        | {
            "own_prefill_s": own.get(row["request_id"]),
            "output_tokens": max(row["output_tokens"], made.get(row["request_id"], 0)),
        }
        for row in rows
    ]


def _latencies(row: dict[str, Any], stopped: Pauses) -> dict[str, float | None]:
    """What needs the last token is None unless the request completed."""
    arrived, first = row["arrived_ns"], row["first_token_ns"]
    last = row["finished_ns"] if row["finish_reason"] in _COMPLETED else None
    decode_s, more = stopped.ran(first, last), row["output_tokens"] - 1
    return {
        "queue_s": stopped.ran(arrived, row["admitted_ns"]),
        "ttft_s": stopped.ran(arrived, first),
        "decode_s": decode_s,
        "e2el_s": stopped.ran(arrived, last),
        "tpot_s": decode_s / more if decode_s is not None and more > 0 else None,
    }


def _own_prefill_s(reader: Reader, run_id: str, ids: list[int]) -> dict[int, float]:
    """Of the steps that computed the prompt of each request the part for its tokens, seconds."""
    sql = f"""
    SELECT q.request_id, sum(s.t_step_s * q.tokens / nullif({_PROMPTS}, 0))
    FROM sequence_steps q JOIN steps s ON s.run_id = $run AND s.step = q.step
    WHERE q.run_id = $run AND q.phase = 'prefill' AND q.request_id IN (SELECT unnest($ids))
    GROUP BY 1
    """
    return dict(reader.rows(sql, {"run": run_id, "ids": ids}))


def _emitted(reader: Reader, run_id: str, ids: list[int]) -> dict[int, int]:
    """How many tokens each request has emitted."""
    sql = """
    SELECT request_id, count(*) FROM tokens
    WHERE run_id = $run AND request_id IN (SELECT unnest($ids)) GROUP BY 1
    """
    return dict(reader.rows(sql, {"run": run_id, "ids": ids})) if ids else {}


def segments(reader: Reader, run_id: str, ids: Sequence[int], end_ns: int) -> pd.DataFrame:
    """What the steps did for each of these requests: neighbouring steps of one phase merged.

    Every prefill chunk is a row of its own, unless that makes more than 2,000 rows in all.
    request_id, phase, first_step, last_step, tokens, start_s, end_s.
    """
    sql = f"""
    SELECT q.request_id AS lane, q.request_id, q.phase, q.step AS first_step, q.step AS last_step,
           q.tokens, s.t_start_ns AS start_ns, {_END} AS end_ns
    FROM sequence_steps q JOIN steps s ON s.run_id = $run AND s.step = q.step
    WHERE q.run_id = $run AND q.request_id IN (SELECT unnest($ids)) AND q.phase <> 'padded'
    AND s.t_start_ns < $end
    """
    cells = reader.frame(sql, {"run": run_id, "ids": list(ids), "end": end_ns})
    made = merged(cells, alone=("prefill", "recompute"))
    if len(made) > MAX_SEGMENTS:
        made = merged(cells)
    ends = {f"{name}_s": (made[f"{name}_ns"] - end_ns) / 1e9 for name in ("start", "end")}
    return made.drop(columns=["lane", "start_ns", "end_ns"]).assign(**ends)


def step_alone(reader: Reader, run_id: str) -> dict[str, Any]:
    """Decode-only steps of the newest 4,000 that ran one sequence, and how all compare with floors.

    alone_s: median time of steps at batch 1, NULL without any; alone_n: how many. ratio: median of
    time over floor of all decode-only steps, NULL without peaks; ratio_n.
    """
    sql = f"""
    SELECT median(t_step_s) FILTER (decode_seqs = 1) AS alone_s,
           count(*) FILTER (decode_seqs = 1) AS alone_n,
           median(t_step_s / nullif(greatest(t_compute_s, t_memory_s), 0)) AS ratio,
           count(greatest(t_compute_s, t_memory_s)) AS ratio_n
    FROM steps WHERE run_id = $run AND phase = 'decode' AND padded_slots = 0
    AND step > (SELECT max(step) FROM steps WHERE run_id = $run) - {LIKE_STEPS}
    """
    return reader.row(sql, {"run": run_id}) or {}


def one(reader: Reader, run_id: str, request_id: int, stopped: Pauses) -> dict[str, Any] | None:
    """A request with its latencies (see the view `request_latency`); None: there is none.

    While it runs, output_tokens is what it has emitted so far. own_prefill_s as in `placed`.
    """
    sql = f"SELECT {', '.join(_FIELDS)} FROM requests WHERE run_id = $run AND request_id = $id"
    found = _rows(reader, sql, {"run": run_id, "id": request_id})
    return _told(reader, run_id, found, stopped)[0] if found else None


def slices(
    reader: Reader, run_id: str, row: dict[str, Any], until_ns: int, stopped: Pauses
) -> pd.DataFrame:
    """The time from a request's admission on, cut at the end of every step: they sum to all of it.

    row: of `one`; until_ns: where it ends if it still runs. step, slice_s (since the step before
    ended, pauses left out), phase and tokens of the request in the step (NULL: it had no part),
    next_phase (of its next part), others_tokens: prompt tokens of others, decode_only,
    decode_seqs, switches.
    """
    sql = f"""
    SELECT s.step, {_END} AS end_ns, {_PROMPTS} AS prompt_tokens, q.phase, q.tokens,
           s.phase = 'decode' AS decode_only, s.decode_seqs,
           coalesce(s.involuntary_switches, 0) AS switches
    FROM steps s LEFT JOIN sequence_steps q
      ON q.run_id = $run AND q.request_id = $id AND q.phase <> 'padded' AND q.step = s.step
    WHERE s.run_id = $run AND {_END} > $admitted AND t_start_ns < $until ORDER BY s.step
    """
    admitted, until = int(row["admitted_ns"]), int(row["finished_ns"] or until_ns)
    who = {"run": run_id, "id": int(row["request_id"])}
    life = reader.frame(sql, {**who, "admitted": admitted, "until": until})
    ends = np.append(np.int64(admitted), np.minimum(life["end_ns"].to_numpy(), until))
    own = life["tokens"].where(life["phase"].isin(("prefill", "recompute")), 0)
    return pd.DataFrame(
        {
            "step": life["step"],
            "slice_s": np.diff(stopped.clock(ends)) / 1e9,
            **{name: life[name] for name in ("phase", "tokens")},
            "next_phase": life["phase"].shift(-1).bfill(),
            "others_tokens": life["prompt_tokens"] - own,
            **{name: life[name] for name in ("decode_only", "decode_seqs", "switches")},
        }
    )


def tokens(reader: Reader, run_id: str, request_id: int, stopped: Pauses) -> pd.DataFrame:
    """Its emitted tokens: index, token_id, step, itl_s (NULL for the first), batch, …

    batch: sequences in the step that emitted it. Of all steps since the token before, also those
    that it had no part in: prompt_tokens, computed for anybody, and lost_tokens, which were its own
    ones computed again.
    """
    sql = """
    SELECT "index", token_id, step, t_ns FROM tokens
    WHERE run_id = $run AND request_id = $id ORDER BY "index"
    """
    mine = reader.frame(sql, {"run": run_id, "id": request_id})
    ran_s = np.diff(stopped.clock(mine["t_ns"].to_numpy())) / 1e9
    ran_s[np.diff(mine["index"].to_numpy()) != 1] = np.nan
    told = mine[["index", "token_id", "step"]].assign(itl_s=np.append(np.nan, ran_s)[: len(mine)])
    return told.assign(**_work(reader, run_id, request_id, mine["step"].to_numpy()))


def _work(
    reader: Reader, run_id: str, request_id: int, steps: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[np.float64]]:
    """batch, prompt_tokens and lost_tokens of `tokens`, for the steps that emitted them."""
    sql = f"""
    SELECT s.step, {_PROMPTS} AS prompts, coalesce(q.tokens, 0) AS lost,
           s.prefill_seqs + s.decode_seqs + s.padded_slots + coalesce(s.recompute_seqs, 0) AS batch
    FROM steps s LEFT JOIN sequence_steps q
      ON q.run_id = $run AND q.request_id = $id AND q.phase = 'recompute' AND q.step = s.step
    WHERE s.run_id = $run AND s.step BETWEEN $first AND $last ORDER BY s.step
    """
    first, last = (int(steps[0]), int(steps[-1])) if len(steps) else (0, -1)
    ran = reader.frame(sql, {"run": run_id, "id": request_id, "first": first, "last": last})
    at = np.searchsorted(ran["step"].to_numpy(), steps)
    unknown = ~np.isin(steps, ran["step"].to_numpy())
    at[unknown] = 0

    def of(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.where(unknown, np.nan, values[at] if len(values) else np.nan)

    prompts, lost = (of(np.nancumsum(ran[name].to_numpy(float))) for name in ("prompts", "lost"))
    between = {"prompt_tokens": prompts, "lost_tokens": lost}
    since = {n: np.append(np.nan, np.diff(v))[: len(steps)] for n, v in between.items()}
    return {"batch": of(ran["batch"].to_numpy(float)), **since}


def reported(reader: Reader, run_id: str) -> dict[str, bool]:
    """Whether the source reports requests, sequence_steps and tokens: True once it has any."""
    names = ("requests", "sequence_steps", "tokens")
    sql = "SELECT EXISTS (SELECT 1 FROM {} WHERE run_id = $run)"
    return {name: bool(reader.value(sql.format(name), {"run": run_id})) for name in names}
