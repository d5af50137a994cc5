"""The gaps that end in a window of steps, judged on columns: a page asks several times a second.

What they mean is defined by the views `interference` and `blame` (telemetry/interference.py), which
say the same of whole runs; `tests/telemetry/test_gap_window.py` holds one against the other. A
window takes its baselines from itself and POOL_STEPS steps before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from telemetry.gap_baselines import Alone, Floats, Ints, fits, medians
from telemetry.interference import HELD_UP, POOL_STEPS
from telemetry.reader import Reader

_END = "(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT))"
_POOL = "run_id = $run AND step BETWEEN $first AND $last"
_STEPS = f"""
SELECT step, t_start_ns AS start_ns, {_END} AS end_ns, t_step_s, phase = 'decode' AS decodes,
       prefill_tokens + recomputed_tokens > 0 AS has_prompt,
       involuntary_switches::DOUBLE AS switches, linear_flops::DOUBLE AS linear_flops,
       attention_flops::DOUBLE AS attention_flops, t_compute_s / nullif(flops, 0) AS s_per_flop,
       greatest(t_compute_s, t_memory_s) AS floor_s
FROM steps WHERE {_POOL} ORDER BY step"""
_PARTS = f"""
SELECT step, slot, request_id, phase IN ('decode', 'padded') AS decodes,
       phase IN ('prefill', 'recompute') AS prompts, phase = 'recompute' AS again,
       tokens::BIGINT AS tokens, emitted_tokens::BIGINT AS emitted,
       context_tokens::BIGINT AS context,
       tokens::BIGINT * computed_context_tokens + tokens::BIGINT * (tokens + 1) // 2 AS attended
FROM sequence_steps WHERE {_POOL} ORDER BY step, request_id"""
# In a run that was never paused a gap is a difference of two stamps.
_PAUSED = "SELECT EXISTS (SELECT 1 FROM events WHERE run_id = $run AND kind = 'pause')"
_ASKING = f"SELECT min(request_id) AS oldest, max(request_id) AS newest FROM tokens WHERE {_POOL}"
_MINE = f"{_POOL} AND request_id BETWEEN $oldest AND $newest"
_WITH_PAUSES = f"SELECT request_id, after_step, step, t_ns, itl_ns FROM itl WHERE {_MINE}"
_WITHOUT = """
SELECT t.request_id, b.step AS after_step, t.step, t.t_ns, t.t_ns - b.t_ns AS itl_ns
FROM tokens t JOIN tokens b
  ON b.run_id = t.run_id AND b.request_id = t.request_id AND b."index" = t."index" - 1
WHERE t.run_id = $run AND t.step BETWEEN $first AND $last
  AND t.request_id BETWEEN $oldest AND $newest"""


@dataclass(frozen=True, slots=True)
class Window:
    """Rows of a window and of the steps before it from which it takes its baselines.

    steps: of the pool, in order. parts: what each sequence got in them, by step and request.
    tokens: those that end a gap in the window.
    """

    first: int
    last: int
    steps: pd.DataFrame
    parts: pd.DataFrame
    tokens: pd.DataFrame

    def steps_shown(self) -> pd.DataFrame:
        """Steps of the window itself."""
        return self.steps[self.steps["step"] >= self.first].reset_index(drop=True)

    def emissions(self) -> pd.DataFrame:
        """step, slot, request_id, tokens that sequences emitted in the window."""
        rows = self.parts[(self.parts["step"] >= self.first) & (self.parts["emitted"] > 0)]
        return rows[["step", "slot", "request_id", "emitted"]].rename(columns={"emitted": "tokens"})


def read_window(reader: Reader, run_id: str, first: int, last: int) -> Window:
    """All that is asked of the database."""
    pool = {"run": run_id, "first": first - POOL_STEPS, "last": last}
    window = {**pool, "first": first}
    sql = _WITH_PAUSES if reader.value(_PAUSED, {"run": run_id}) else _WITHOUT
    ends = reader.row(_ASKING, window) or {}
    return Window(
        first,
        last,
        reader.frame(_STEPS, pool),
        reader.frame(_PARTS, pool),
        reader.frame(sql, {**window, **ends}),
    )


@dataclass(frozen=True, slots=True)
class _Loads:
    """Per step of the pool: sequences that decode, their contexts, and all that ran."""

    known: npt.NDArray[np.bool_]
    batch: Ints
    kv_tokens: Ints
    tokens: Floats
    attended: Floats


def _loads(window: Window) -> _Loads:
    steps, parts = window.steps["step"].to_numpy(), window.parts
    place = np.searchsorted(steps, parts["step"].to_numpy())
    decodes = parts["decodes"].to_numpy(dtype=float)

    def total(values: Floats) -> Floats:
        return np.bincount(place, weights=values, minlength=len(steps)).astype(float)

    return _Loads(
        np.bincount(place, minlength=len(steps)) > 0,
        total(decodes).astype(np.int64),
        total(decodes * parts["context"].to_numpy()).astype(np.int64),
        total(parts["tokens"].to_numpy(dtype=float)),
        total(parts["attended"].to_numpy(dtype=float)),
    )


def prompts(window: Window) -> pd.DataFrame:
    """Rows of the pool with prompt tokens: step, request_id, phase (prefill or recompute), tokens,
    flops, floor_s (below that no roof allows their math; NaN: unknown)."""
    loads, steps = _loads(window), window.steps
    rows = window.parts[window.parts["prompts"].to_numpy()]
    place = np.searchsorted(steps["step"].to_numpy(), rows["step"].to_numpy())
    tokens = rows["tokens"].to_numpy(dtype=float)
    attended = np.where(loads.attended[place] > 0, loads.attended[place], np.nan)
    counted = steps["linear_flops"].to_numpy()[place] * tokens / loads.tokens[place]
    counted = counted + (
        steps["attention_flops"].to_numpy()[place] * rows["attended"].to_numpy() / attended
    )
    counted = np.where(counted != 0, counted, np.nan)
    return pd.DataFrame(
        {
            "step": rows["step"].to_numpy(),
            "request_id": rows["request_id"].to_numpy(),
            "phase": np.where(rows["again"].to_numpy(), "recompute", "prefill").astype(object),
            "tokens": rows["tokens"].to_numpy(),
            "flops": np.where(np.isnan(counted), tokens, counted),
            "floor_s": counted * steps["s_per_flop"].to_numpy(dtype=float)[place],
        }
    )


def gaps(window: Window, asked: pd.DataFrame) -> pd.DataFrame:
    """Kinds of gaps by time; asked: `prompts` of the window. See telemetry.queries.interference."""
    found, streams = _kinds(window.tokens)
    loads = _loads(window)
    place = np.searchsorted(window.steps["step"].to_numpy(), found["step"].to_numpy())
    known = loads.known[place] if len(place) else np.zeros(0, bool)
    alone = _alone(window.steps, loads)
    baseline_s, named = _baselines(alone, loads, place, known)
    itl_s = found["itl_ns"].to_numpy() / 1e9
    lost_s, inflation = itl_s - baseline_s, itl_s / baseline_s
    flops, floor_s, switches = _within(window.steps, asked, found)
    cause = _causes(lost_s, inflation, flops, floor_s * alone.pace, switches)
    cause[~known] = None
    columns: dict[str, Any] = {
        "itl_s": itl_s,
        "gaps": found["gaps"].to_numpy(),
        "batch": np.where(known, loads.batch[place], np.nan),
        "baseline_s": baseline_s,
        "baseline_from": named,
        "interference_s": lost_s,
        "inflation": inflation,
        "prompt_flops": flops,
        "cause": cause,
        "streams": streams,
    }
    return pd.DataFrame({**found[["after_step", "step", "t_ns"]], **columns})


def _baselines(
    alone: Alone, loads: _Loads, place: npt.NDArray[np.intp], known: npt.NDArray[np.bool_]
) -> tuple[Floats, npt.NDArray[Any]]:
    """Of the steps at these places, and how each was found: "median", "fit" or None."""
    batch, kv_tokens = np.where(known, loads.batch[place], 0), loads.kv_tokens[place]
    median = np.where(known, medians(alone, batch, kv_tokens), np.nan)
    fit = np.where(known, fits(alone, batch, kv_tokens), np.nan)
    named = np.select([~np.isnan(median), ~np.isnan(fit)], ["median", "fit"], "").astype(object)
    named[named == ""] = None
    return np.where(np.isnan(median), fit, median), named


def _within(
    steps: pd.DataFrame, asked: pd.DataFrame, found: pd.DataFrame
) -> tuple[Floats, Floats, Floats]:
    """Prompt FLOPs, the least time of their math, and OS switches in the steps of each gap."""
    after, until = found["after_step"].to_numpy(), found["step"].to_numpy()
    prompted = asked["step"].to_numpy()
    switches = steps["switches"].to_numpy(dtype=float)
    return (
        _between(prompted, asked["flops"].to_numpy(), after, until),
        _between(prompted, asked["floor_s"].to_numpy(), after, until),
        _between(steps["step"].to_numpy(), switches, after, until),
    )


def _kinds(tokens: pd.DataFrame) -> tuple[pd.DataFrame, npt.NDArray[Any]]:
    """Gaps with the same steps and time, once with their number; and whose they are."""
    names = ["itl_ns", "after_step", "step", "t_ns"]
    columns = [tokens[name].to_numpy(dtype=np.int64) for name in names]
    order = np.lexsort(columns)
    columns = [column[order] for column in columns]
    opens = np.ones(len(order), bool)
    if len(order):
        opens[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    begins = np.flatnonzero(opens)
    found = pd.DataFrame({n: c[begins] for n, c in zip(names, columns, strict=True)})
    found["gaps"] = np.diff(np.append(begins, len(order)))
    streams = np.empty(len(begins), dtype=object)
    streams[:] = np.split(tokens["request_id"].to_numpy()[order], begins[1:])
    return found, streams


def _alone(steps: pd.DataFrame, loads: _Loads) -> Alone:
    mine = steps["decodes"].to_numpy() & (loads.batch > 0)
    rows = steps[mine]
    return Alone(
        loads.batch[mine],
        loads.kv_tokens[mine],
        rows["t_step_s"].to_numpy(),
        np.nan_to_num(rows["switches"].to_numpy(dtype=float)),
        rows["floor_s"].to_numpy(dtype=float),
    )


def _between(steps: Ints, values: Floats, after: Ints, until: Ints) -> Floats:
    """Sum of what is known in steps after + 1 to until each; NaN where nothing is."""
    low = np.searchsorted(steps, after, side="right")
    high = np.searchsorted(steps, until, side="right")
    known = np.append(~np.isnan(values), False)
    numbers = np.append(np.nan_to_num(values), 0.0)
    ends = np.column_stack([low, high]).ravel()
    if not len(ends):
        return np.zeros(0)
    some = np.add.reduceat(known.astype(np.int64), ends)[::2]
    sums = np.add.reduceat(numbers, ends)[::2]
    return np.where((high > low) & (some > 0), sums, np.nan)


def _causes(
    lost_s: Floats, inflation: Floats, flops: Floats, prompt_s: Floats, switches: Floats
) -> npt.NDArray[Any]:
    """As the view has it (see telemetry/interference.py); a comparison with NaN is false."""
    taken, prompted = switches > 0, ~np.isnan(flops)
    held = taken | ((switches == 0) & (inflation > HELD_UP))
    hosts = np.where(prompted, taken & (lost_s - prompt_s > lost_s / 2), held)
    return np.select([hosts, prompted], ["host", "prefill"], "unexplained").astype(object)
