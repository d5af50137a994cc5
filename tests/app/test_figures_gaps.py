"""Words at the longest gap: beside the dots, inside the plot."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.figures.gaps import Scale, gap_notes, gap_range
from app.theme import CALLOUT_PX, LIGHT

SPAN_S, WIDTH_PX, HEIGHT_PX = 6.0, 570.0, 118.0
WORDS = "<b>×14.2</b> baseline, 144 gaps"
LETTER_PX = 6.5  # of the callout's size, on average; the digits are the widest


def frame(dots: list[tuple[float, float]]) -> pd.DataFrame:
    """Bad gaps at (x_s, itl_s)."""
    rows = pd.DataFrame(dots, columns=["x_s", "itl_s"])
    return rows.assign(inflation=5.0, baseline_s=0.01)


def scale_of(gaps: pd.DataFrame) -> Scale:
    low, high = gap_range([gaps])
    return Scale(SPAN_S / WIDTH_PX, float(np.log10(high / low)) / HEIGHT_PX)


def words_px(gaps: pd.DataFrame) -> tuple[dict[str, Any], tuple[float, float, float, float]]:
    """The callout, and left, right, bottom, top of its words in pixels from its dot."""
    row = gaps.nlargest(1, "itl_s").iloc[0]
    worst = (float(row["x_s"]), float(row["itl_s"]), WORDS)
    note = gap_notes("", worst, gaps, SPAN_S, scale_of(gaps), LIGHT)[-1]
    width = LETTER_PX * len(re.sub("<.*?>", "", WORDS))
    left = {"left": 0.0, "center": -0.5, "right": -1.0}[note["xanchor"]] * width + note["xshift"]
    low = {"bottom": 0.0, "middle": -0.5, "top": -1.0}[note["yanchor"]] * CALLOUT_PX
    low += note["yshift"]
    return note, (left, left + width, low, low + CALLOUT_PX)


def hits(gaps: pd.DataFrame) -> int:
    """Dots under the words, the called one too."""
    note, (left, right, low, high) = words_px(gaps)
    scale = scale_of(gaps)
    x = (gaps["x_s"] - note["x"]) / scale.x_s
    y = (np.log10(gaps["itl_s"] * 1e3) - note["y"]) / scale.decades
    under = (x > left - 4) & (x < right + 4) & (y > low - 4) & (y < high + 4)
    return int(under.sum())


ROW = [(0.5 + 0.1 * k, 0.045 - 0.0001 * (k % 3)) for k in range(50)]
CASES = {
    "alone": [(3.0, 0.6)],
    "at the left edge": [(0.02, 0.6)],
    "at the right edge": [(5.98, 0.6)],
    "in a row": [*ROW, (2.5, 0.046)],
    "at the end of a row": [*ROW, (5.5, 0.046)],
    "at the begin of a row": [(0.4, 0.046), *ROW],
    "over a column": [(3.0, 0.6 - 0.05 * k) for k in range(8)],
}


@pytest.mark.parametrize("name", CASES)
def test_the_words_lie_on_no_dot_and_inside_the_plot(name: str) -> None:
    gaps = frame(CASES[name])
    note, (left, right, _, high) = words_px(gaps)
    assert hits(gaps) == 0
    x = note["x"] / (SPAN_S / WIDTH_PX)
    assert x + left >= 0
    assert x + right <= WIDTH_PX
    top = np.log10(gap_range([gaps])[1])
    assert (top - note["y"]) / scale_of(gaps).decades >= high - 2


def test_a_higher_gap_of_another_cause_moves_the_words_aside() -> None:
    """The callout is at the longest of the prompt's gaps; the host's may be higher."""
    gaps = frame([(3.0, 0.1), *[(2.8 + 0.05 * k, 0.14) for k in range(9)]])
    worst = (3.0, 0.1, WORDS)
    note = gap_notes("", worst, gaps, SPAN_S, scale_of(gaps), LIGHT)[-1]
    assert (note["xanchor"], note["yanchor"]) != ("center", "bottom")


def test_without_a_gap_to_call_there_is_the_baseline_alone() -> None:
    notes = gap_notes("baseline 10 ms", None, frame([]), SPAN_S, Scale(0.01, 0.01), LIGHT)
    assert [n["text"] for n in notes] == ["baseline 10 ms"]
