"""What a gap costs without prompt tokens, from the decode-only steps of a window, on columns.

The same baselines as those of the view `interference` (telemetry/interference.py), which is their
definition; `tests/telemetry/test_gap_window.py` holds one against the other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.interference import LEAST_ALIKE, LEAST_FITTED, REACH

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Alone:
    """Decode-only steps: sequences and their KV tokens, time, OS switches (0: unknown), floor."""

    batch: Ints
    kv_tokens: Ints
    t_step_s: Floats
    switches: Floats
    floor_s: Floats

    @property
    def pace(self) -> float:
        """How many times their floors they take, the median; NaN where no floor is known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = self.t_step_s / np.where(self.floor_s > 0, self.floor_s, np.nan)
        ratios = ratios[~np.isnan(ratios)]
        return float(np.median(ratios)) if len(ratios) else float("nan")


def medians(alone: Alone, batch: Ints, kv_tokens: Ints) -> Floats:
    """Of at least LEAST_ALIKE steps within a tenth of both; NaN where they are fewer."""
    found = np.full(len(batch), np.nan)
    for size in np.unique(batch[batch > 0]):
        mine = np.flatnonzero(batch == size)
        mine = mine[np.argsort(kv_tokens[mine], kind="stable")]
        like = np.flatnonzero(np.abs(alone.batch - size) * 10 <= size)
        like = like[np.argsort(alone.kv_tokens[like], kind="stable")]
        kv, asked = alone.kv_tokens[like], kv_tokens[mine]
        low = np.searchsorted(kv, asked - asked // 10, side="left")
        high = np.searchsorted(kv, asked + asked // 10, side="right")
        found[mine] = _sliding(alone.t_step_s[like].tolist(), low.tolist(), high.tolist())
    return found


def _sliding(values: list[float], lows: list[int], highs: list[int]) -> list[float]:
    """Median of values[low:high] each; neither end ever goes back."""
    window: list[float] = []
    first = last = 0
    found = []
    for low, high in zip(lows, highs, strict=True):
        while last < high:
            insort(window, values[last])
            last += 1
        while first < low:
            del window[bisect_left(window, values[first])]
            first += 1
        many = len(window)
        middle = (window[many // 2] + window[(many - 1) // 2]) / 2 if many else float("nan")
        found.append(middle if many >= LEAST_ALIKE else float("nan"))
    return found


def fits(alone: Alone, batch: Ints, kv_tokens: Ints) -> Floats:
    """Least squares of time on batch and KV tokens, on the calmer half; NaN far beyond what it saw
    and where too few steps are calm."""
    calm = alone.switches <= (np.median(alone.switches) if len(alone.switches) else 0.0)
    b, k = alone.batch[calm].astype(float), alone.kv_tokens[calm].astype(float)
    t = alone.t_step_s[calm]
    if len(t) < LEAST_FITTED:
        return np.full(len(batch), np.nan)
    mean_b, mean_k, mean_t = b.mean(), k.mean(), t.mean()
    # Where all have one batch there is no slope over batches: a little is added to the diagonal.
    bb, kk = b.var() + 1e-6 * mean_b**2, k.var() + 1e-6 * mean_k**2
    bk = ((b - mean_b) * (k - mean_k)).mean()
    bt, kt = ((b - mean_b) * (t - mean_t)).mean(), ((k - mean_k) * (t - mean_t)).mean()
    rise_b, rise_k = bt * kk - kt * bk, kt * bb - bt * bk
    fit = mean_t + ((batch - mean_b) * rise_b + (kv_tokens - mean_k) * rise_k) / (bb * kk - bk**2)
    near = (batch >= b.min() / REACH) & (batch <= b.max() * REACH)
    near &= (kv_tokens >= k.min() / REACH) & (kv_tokens <= k.max() * REACH)
    return np.where(near & (fit > 0), fit, np.nan)
