"""Anatomy of a step: reading and math apart, parts that sum to the step."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from app.figures.anatomy import anatomy, segments
from app.theme import DARK, LIGHT
from telemetry.queries import live
from telemetry.reader import Reader
from tests.app.synthetic import RUN_ID


@pytest.fixture
def steps(reader: Reader) -> pd.DataFrame:
    newest = live.newest(reader, RUN_ID)
    assert newest is not None
    return live.anatomy(reader, RUN_ID, newest["step"])


def bars(figure: dict[str, Any], name: str, axis: str = "x") -> list[dict[str, Any]]:
    return [t for t in figure["data"] if t["name"] == name and t["xaxis"] == axis]


def test_the_median_step_is_a_real_step(reader: Reader, steps: pd.DataFrame) -> None:
    decode = steps[steps["phase"] == "decode"].iloc[0]
    span = 250_000_000
    times = reader.frame(
        "SELECT t_step_s FROM steps WHERE run_id = $run AND phase = 'decode' AND "
        "t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT) > (SELECT max(t_start_ns + "
        "CAST(round(t_step_s * 1e9) AS BIGINT)) FROM steps WHERE phase = 'decode') - $span",
        {"run": RUN_ID, "span": span},
    )["t_step_s"].sort_values()
    assert len(times) == decode["n"]
    assert decode["t_step_s"] == times.iloc[(len(times) + 1) // 2 - 1]


def test_reading_is_never_stacked_on_math(steps: pd.DataFrame) -> None:
    figure = anatomy(steps, LIGHT)
    for axis in ("x", "x2"):
        (math_bar,) = bars(figure, "math", axis)
        assert math_bar["base"] == [0]
        assert math_bar["y"] == ["math"]
        (weights,) = bars(figure, "weights", axis)
        assert weights["base"] == [0]
        assert weights["y"] == ["read"]
    assert figure["layout"]["barmode"] == "overlay"


def test_measured_parts_sum_to_the_step(steps: pd.DataFrame) -> None:
    for row in steps.to_dict("records"):
        parts = [s for s in segments({str(k): v for k, v in row.items()}) if s.row == "measured"]
        assert [p.part for p in parts] == ["floor", "below roof", "host"]
        assert sum(p.length_ms for p in parts) == pytest.approx(row["t_step_s"] * 1e3)
        ends = [p.start_ms + p.length_ms for p in parts]
        assert [p.start_ms for p in parts[1:]] == pytest.approx(ends[:-1])


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_colours_follow_roles(steps: pd.DataFrame, look: Any) -> None:
    figure = anatomy(steps, look)
    (floor,) = bars(figure, "floor")
    (below,) = bars(figure, "below roof")
    (host,) = bars(figure, "host")
    assert floor["marker"]["color"] == look.memory
    assert below["marker"]["pattern"]["fgcolor"] == look.memory
    assert host["marker"]["color"] == look.overhead
    (prompt_floor,) = bars(figure, "floor", "x2")
    assert prompt_floor["marker"]["color"] == look.compute


def test_a_step_without_peaks_says_so(steps: pd.DataFrame) -> None:
    blind = steps.assign(
        t_compute_s=None, t_memory_s=None, t_weights_s=None, t_kv_s=None, t_inefficiency_s=None
    )
    figure = anatomy(blind, LIGHT)
    assert not bars(figure, "floor")
    texts = [a["text"] for a in figure["layout"]["annotations"]]
    assert texts.count("not reported by this source") == 4


def test_a_step_that_beats_the_roof_says_recalibrate(steps: pd.DataFrame) -> None:
    fast = steps.assign(forward_s=steps["t_memory_s"] * 0.9, t_inefficiency_s=-0.001)
    figure = anatomy(fast[fast["phase"] == "decode"], LIGHT)
    assert not bars(figure, "below roof")
    assert any("recalibrate" in a["text"] for a in figure["layout"]["annotations"])


@pytest.mark.parametrize("factor", [0.01, 1.0, 2.7, 5.1, 40.0])
def test_tick_labels_of_the_two_axes_stay_apart(steps: pd.DataFrame, factor: float) -> None:
    """At 1280 px the figure is 743 px wide; a label is centred on its tick, 7.2 px a character."""
    times = [name for name in steps.columns if name.endswith("_s") and name != "age_s"]
    shape = anatomy(steps.assign(**{t: steps[t] * factor for t in times}), LIGHT)["layout"]
    plot_px = 743 - shape["margin"]["l"] - shape["margin"]["r"]

    def place_px(axis: str, tick: int) -> float:
        start, end = shape[axis]["domain"]
        at = shape[axis]["tickvals"][tick] / shape[axis]["range"][1]
        return float((start + at * (end - start)) * plot_px)

    left, right = shape["xaxis"]["ticktext"][-1], shape["xaxis2"]["ticktext"][0]
    apart = place_px("xaxis2", 0) - place_px("xaxis", -1)
    assert apart - 7.2 * (len(left) + len(right)) / 2 > 40


@pytest.mark.parametrize(
    ("fresh", "again", "text"),
    [(42, 0, "42 prompt tokens"), (0, 44, "44 again"), (42, 44, "42 new, 44 again")],
)
def test_recomputed_tokens_are_no_prompt_tokens(
    steps: pd.DataFrame, fresh: int, again: int, text: str
) -> None:
    mixed = steps[steps["phase"] != "decode"].assign(prefill_tokens=fresh, recomputed_tokens=again)
    titles = [note["text"] for note in anatomy(mixed, LIGHT)["layout"]["annotations"]]
    assert any(f"</b> · {text} · " in title for title in titles)
