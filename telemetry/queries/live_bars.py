"""Bars of the strip: a window of steps, binned so that no picture grows with it.

The steps are read once and binned by numpy: the same in SQL took DuckDB five times as long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from telemetry.queries.live import since_ns
from telemetry.queries.live_tokens import Floats, Ints
from telemetry.reader import Reader, floats

MAX_BARS = 400
# Bin widths a person can name; the smallest that keeps the window under MAX_BARS is used.
_BINS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
TOKENS = ("prefill_tokens", "decode_tokens", "cached_tokens", "lost_tokens")


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a window, by number. decode_only: no prompt was in it. tokens: per kind of
    `TOKENS` those of each step, NaN where the source does not say."""

    end_ns: int
    step: Ints
    t_start_ns: Ints
    t_step_s: Floats
    decode_only: npt.NDArray[np.bool_]
    tokens: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.step)

    @property
    def median_s(self) -> float:
        """Of a step; 0 without steps."""
        return float(np.median(self.t_step_s)) if len(self) else 0.0


def steps(reader: Reader, run_id: str, end_ns: int, span_s: float) -> Steps:
    """Those that start in the span_s seconds before end_ns. cached_tokens came from the prefix
    cache and were not computed; lost_tokens were computed again."""
    sql = """
    SELECT step, t_start_ns, t_step_s, phase = 'decode' AS decode_only, prefill_tokens,
           decode_tokens, prefix_hit_tokens AS cached_tokens, recomputed_tokens AS lost_tokens
    FROM steps WHERE run_id = $run AND t_start_ns >= $since AND t_start_ns < $end ORDER BY step
    """
    window = {"run": run_id, "since": since_ns(end_ns, span_s), "end": end_ns}
    found = reader.columns(sql, window)
    return Steps(
        end_ns=end_ns,
        step=np.asarray(found["step"]),
        t_start_ns=np.asarray(found["t_start_ns"]),
        t_step_s=np.asarray(found["t_step_s"]),
        decode_only=np.asarray(found["decode_only"]),
        tokens={name: floats(found[name]) for name in TOKENS},
    )


def bin_width(steps: int, median_s: float, span_s: float) -> float | None:
    """Seconds a bar has to stand for; None while every step of the window has a bar of its own.

    A bin holds two steps or more, since a bin in which none starts would look like idle time.
    """
    if steps <= MAX_BARS:
        return None
    least = max(span_s / MAX_BARS, 2 * median_s)
    return next((w for w in _BINS_S if w >= least), least)


def bars(found: Steps, width_s: float | None) -> pd.DataFrame:
    """One row per bar: x_s (centre), width_s, and the longest and the largest step it stands for.

    Without width_s a bar is a step. With it a bar is a bin on the clock: step, t_step_s and
    decode_only of its longest step, the tokens of the step with most of them (never added up over
    steps), and n, how many they are. A step longer than a bin is drawn where and as long as it was.
    x_s is in seconds before the window's end (negative), so that an axis never moves.
    """
    bin_ns = round((width_s or 0.0) * 1e9)
    bin_ = found.t_start_ns // bin_ns if bin_ns else found.step
    longest, n = _largest(bin_, found.t_step_s)
    fullest, _ = _largest(bin_, np.nansum(list(found.tokens.values()), axis=0))
    t_step_s = found.t_step_s[longest]
    x_s, drawn_s = (found.t_start_ns[longest] - found.end_ns) / 1e9 + t_step_s / 2, t_step_s
    if width_s is not None:
        centre_s = ((bin_[longest] + 0.5) * bin_ns - found.end_ns) / 1e9
        wide = t_step_s > width_s
        x_s, drawn_s = np.where(wide, x_s, centre_s), np.where(wide, t_step_s, width_s)
    columns = {
        "step": found.step[longest],
        "n": n,
        "decode_only": found.decode_only[longest],
        "t_step_s": t_step_s,
        **{name: tokens[fullest] for name, tokens in found.tokens.items()},
        "x_s": x_s,
        "width_s": drawn_s,
    }
    return pd.DataFrame(columns)


def _largest(bin_: Ints, value: Floats) -> tuple[Ints, Ints]:
    """Per bin, in order: where its largest value stands (the first of equals), and how many it
    holds."""
    order = np.lexsort((-value, bin_))
    first = np.flatnonzero(np.diff(bin_[order], prepend=bin_[order][:1] - 1))
    return order[first], np.diff(first, append=len(order))
