"""Neighbouring steps that did the same for one request, merged: one bar of a Gantt.

Thousands of steps make tens of thousands of cells, which an array merges ten times as fast as
window functions do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

# Steps follow each other with a breath between them; where it is longer, nothing ran (1 ms).
BREATH_NS = 1_000_000


def merged(parts: pd.DataFrame, alone: Collection[str] = ()) -> pd.DataFrame:
    """Rows of one lane that have one request and phase and follow each other, as one row.

    Columns: lane, request_id, phase, first_step, last_step, tokens, start_ns, end_ns; ordered by
    lane and first_step. alone: phases whose rows stay apart. What is merged may be merged again.
    """
    if parts.empty:
        return parts
    order = np.argsort(parts["first_step"].to_numpy(), kind="stable")
    order = order[np.argsort(parts["lane"].to_numpy()[order], kind="stable")]
    rows = {name: parts[name].to_numpy()[order] for name in parts.columns if name != "phase"}
    phases = pd.Categorical(parts["phase"])
    codes = np.asarray(phases.codes)[order]
    apart = [i for i, name in enumerate(phases.categories) if name in alone]
    opens = np.flatnonzero(_opens(rows, codes, apart))
    ends = np.append(opens[1:], len(order)) - 1
    return pd.DataFrame(
        {
            **{name: rows[name][opens] for name in ("lane", "request_id")},
            "phase": phases[order[opens]],
            "first_step": rows["first_step"][opens],
            "last_step": rows["last_step"][ends],
            "tokens": np.add.reduceat(rows["tokens"].astype(np.int64), opens),
            "start_ns": rows["start_ns"][opens],
            "end_ns": rows["end_ns"][ends],
        }
    )


def _opens(
    rows: Mapping[str, npt.NDArray[Any]], codes: npt.NDArray[np.int8], apart: Sequence[int]
) -> npt.NDArray[np.bool]:
    """Whether a row does not go on with the one before it. apart: phases that never do."""
    follows = rows["first_step"][1:] == rows["last_step"][:-1] + 1
    follows &= rows["start_ns"][1:] <= rows["end_ns"][:-1] + BREATH_NS
    for values in (rows["lane"], rows["request_id"], codes):
        follows &= values[1:] == values[:-1]
    if apart:
        follows &= ~np.isin(codes[1:], apart)
    return np.concatenate([[True], ~follows])
