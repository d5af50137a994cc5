"""Figures of the What-if page, asserted on their data: they are pure functions of plain values."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd
import pytest

from app.figures.anatomy import Segment
from app.figures.batch_cost import batch_cost
from app.figures.budget import Budget, budget
from app.figures.overlap import overlap
from app.figures.phases import Point, phases
from app.figures.plane import Peaks
from app.figures.prompt_cost import prompt_cost
from app.theme import DARK, LIGHT, Theme
from engine.physics.roofline import Crossover

PIECES = [
    Segment("read", "weights", 0.0, 40.0, "memory"),
    Segment("read", "KV", 40.0, 10.0, "cached"),
    Segment("math", "math", 0.0, 2.0, "compute"),
]
STEP = [
    Segment("step", "floor", 0.0, 50.0, "memory"),
    Segment("step", "below roof", 50.0, 12.0, "memory", True),
]
PEAKS = Peaks(1e15, 4e12, "datasheet")


def named(figure: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [t for t in figure["data"] if t["name"] == name]
    return dict(found)


def texts(figure: dict[str, Any]) -> str:
    return " | ".join(a["text"] for a in figure["layout"]["annotations"])


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_reading_and_computing_both_begin_at_zero(look: Theme) -> None:
    figure = overlap(PIECES, {"read": "A", "math": "B"}, look)
    json.dumps(figure, allow_nan=False)
    assert figure["layout"]["barmode"] == "overlay"
    weights, kv, math_bar = (named(figure, n) for n in ("weights", "KV", "math"))
    assert weights["base"] == math_bar["base"] == [0]
    assert kv["base"] == [40]
    assert weights["y"] == kv["y"] != math_bar["y"]
    assert weights["marker"]["color"] == look.memory
    assert math_bar["marker"]["color"] == look.compute


def test_rows_say_what_is_divided_by_what_and_how_long_it_takes() -> None:
    figure = overlap(PIECES, {"read": "140 GB ÷ 3.35 TB/s", "math": "x"}, LIGHT)
    axis = figure["layout"]["yaxis"]
    at = dict(zip(axis["ticktext"], axis["tickvals"], strict=True))
    read = next(v for text, v in at.items() if "140 GB ÷ 3.35 TB/s" in text)
    assert named(figure, "weights")["y"] == [read]
    ends = {a["y"]: a["text"] for a in figure["layout"]["annotations"]}
    assert ends[read] == "<b>50.0 ms</b>"


def test_a_step_has_its_own_row_only_where_it_is_given() -> None:
    assert len(overlap(PIECES, {}, LIGHT)["layout"]["yaxis"]["tickvals"]) == 2
    figure = overlap([*PIECES, *STEP], {}, LIGHT)
    assert len(figure["layout"]["yaxis"]["tickvals"]) == 3
    below = named(figure, "below roof")
    assert below["y"] == named(figure, "floor")["y"] == [0]
    assert below["marker"]["pattern"]["shape"] == "/"


def test_what_is_unknown_stands_behind_the_reading_bar_and_no_other() -> None:
    figure = overlap(PIECES, {}, LIGHT, "+ KV cache, unknown")
    (told,) = [a for a in figure["layout"]["annotations"] if "unknown" in a["text"]]
    assert told["x"] == 50


def test_the_axis_ends_behind_the_longest_bar() -> None:
    figure = overlap(PIECES, {}, LIGHT)
    assert figure["layout"]["xaxis"]["range"] == [0, 60]


ROOM = Budget(weights=60e9, kv=10e9, activations=1e9, usable=80e9, capacity=80e9)


def bar_ends(figure: dict[str, Any]) -> list[tuple[str, float, float]]:
    return [(t["name"], t["base"][0], t["base"][0] + t["x"][0]) for t in figure["data"]]


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_memory_is_one_unbroken_bar(look: Theme) -> None:
    figure = budget(ROOM, look)
    json.dumps(figure, allow_nan=False)
    parts = bar_ends(figure)
    assert [p[0] for p in parts] == ["weights", "KV", "activations", "free"]
    assert [p[1] for p in parts] == [0, *[p[2] for p in parts[:-1]]]
    assert parts[-1][2] == 80e9
    assert "70.0 GB of 80.0 GB" in texts(figure)


def test_activations_are_beside_what_must_fit() -> None:
    figure = budget(Budget(60e9, 20e9, 3e9, 80e9, 80e9), LIGHT)
    assert "80.0 GB of 80.0 GB" in texts(figure)
    over = named(figure, "activations, does not fit")
    assert (over["base"], over["x"]) == ([80e9], [3e9])


def test_what_does_not_fit_is_hatched_beyond_the_wall() -> None:
    figure = budget(Budget(140e9, 5e9, None, 72e9, 80e9), LIGHT)
    weights, over = named(figure, "weights"), named(figure, "weights, does not fit")
    assert weights["x"] == [72e9]
    assert over["base"] == [72e9]
    assert over["marker"]["pattern"]["shape"] == "/"
    assert "KV, does not fit" in [t["name"] for t in figure["data"]]
    assert "free" not in [t["name"] for t in figure["data"]]
    assert [s["x0"] for s in figure["layout"]["shapes"]] == [80e9, 72e9]
    assert "do not fit in 72.0 GB" in texts(figure)


def test_unknown_memory_is_named_and_not_drawn() -> None:
    figure = budget(Budget(60e9, None, None, 80e9, 80e9), LIGHT)
    assert [t["name"] for t in figure["data"]] == ["weights", "free"]
    assert "unknown: KV cache and activations" in texts(figure)


def batch_curves(kv: bool = True, slower: float = 1.0) -> pd.DataFrame:
    batch = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]
    compute = [0.1e-3 * b for b in batch]
    memory = [40e-3 + (0.01e-3 * b if kv else math.nan) for b in batch]
    step = [slower * max(c, m if kv else 40e-3) for c, m in zip(compute, memory, strict=True)]
    columns = {"weights_s": 40e-3, "memory_s": memory, "compute_s": compute, "step_s": step}
    more = {"intensity": batch, "achieved_flops": [4e12 * b for b in batch]}
    return pd.DataFrame({"batch": batch, **columns, **more})


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_curves_over_batch_with_the_chosen_one(look: Theme) -> None:
    figure = batch_cost(batch_curves(), Crossover(444.0), (16.0, 41e-3), look, 512)
    json.dumps(figure, allow_nan=False)
    assert named(figure, "weights")["y"] == [40] * 6
    assert named(figure, "read")["y"][-1] == pytest.approx(50.24)
    assert named(figure, "math")["y"][0] == pytest.approx(0.1)
    point = named(figure, "live")
    assert (point["x"], point["y"]) == ([16], [41])
    assert "step" not in [t["name"] for t in figure["data"]]
    assert "B* with KV <b>444</b>" in texts(figure)
    assert "nearly free" in texts(figure)


def test_a_step_slower_than_its_floor_has_a_curve() -> None:
    figure = batch_cost(batch_curves(slower=1.2), Crossover(444.0), (1.0, 0.05), LIGHT, 0)
    assert named(figure, "step")["y"][0] == pytest.approx(1.2 * 40.01, rel=1e-3)
    assert "B* <b>444</b>" in texts(figure)


def test_a_crossover_that_does_not_exist_or_lies_beyond_is_told() -> None:
    none = batch_cost(batch_curves(), Crossover(None, "KV"), (1.0, 0.04), LIGHT, 4096)
    assert "no crossover" in texts(none)
    far = batch_cost(batch_curves(), Crossover(9640.0), (1.0, 0.04), LIGHT, 0)
    assert "math overtakes at 9,640" in texts(far)


def test_unknown_kv_leaves_a_gap_and_no_zero() -> None:
    figure = batch_cost(batch_curves(kv=False), Crossover(None, "unknown"), (1.0, 0.04), LIGHT, 512)
    json.dumps(figure, allow_nan=False)
    assert named(figure, "read")["y"] == [None] * 6


POINTS = [
    Point("decode", "decode, batch 4", 4.0, 1.6e13, True),
    Point("prefill", "prefill, 4,096 tokens", 4000.0, 0.7e15, False),
]


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_both_phases_stand_under_the_roofs(look: Theme) -> None:
    figure = phases(POINTS, batch_curves(), PEAKS, None, look)
    json.dumps(figure, allow_nan=False)
    decode, prefill = named(figure, "decode"), named(figure, "prefill")
    assert decode["marker"]["size"] > prefill["marker"]["size"]
    assert prefill["marker"]["color"] == look.prefill
    left, right = (10**v for v in figure["layout"]["xaxis"]["range"])
    assert left < 1 < 4000 < right
    for roof in ("memory roof", "compute roof"):
        assert named(figure, roof)["line"]["dash"] == "dash"  # the datasheet's
    assert "70% of its roof" in texts(figure)
    assert texts(figure).count("of its roof") == 1


def prompt_curves(attention: bool = True) -> pd.DataFrame:
    tokens = [64.0, 1024.0, 16_384.0, 262_144.0]
    quadratic = [1e-9 * t * t if attention else math.nan for t in tokens]
    columns = {"linear_s": [1e-4 * t for t in tokens], "attention_s": quadratic, "read_s": 0.04}
    return pd.DataFrame({"tokens": tokens, **columns, "step_s": [1.1e-4 * t for t in tokens]})


def test_a_prompts_linear_and_quadratic_parts() -> None:
    figure = prompt_cost(prompt_curves(), (4096.0, 0.45), LIGHT, 1)
    json.dumps(figure, allow_nan=False)
    assert named(figure, "math, linear")["y"][1] == pytest.approx(102.4)
    assert named(figure, "math, attention")["y"][2] == pytest.approx(268.4)
    assert named(figure, "live")["x"] == [4096]
    assert "attention passes the linear layers at 100 thousand tokens" in texts(figure)


def test_attention_of_an_unknown_shape_is_no_zero() -> None:
    figure = prompt_cost(prompt_curves(False), (4096.0, 0.45), LIGHT, 8)
    json.dumps(figure, allow_nan=False)
    assert named(figure, "math, attention")["y"] == [None] * 4
    assert "8 prompts" in texts(figure)


def test_what_a_step_spends_beyond_its_floor_is_named() -> None:
    links = Segment("step", "links", 62.0, 3.0, "padding")
    figure = overlap([*PIECES, *STEP, links], {}, LIGHT)
    assert "below roof 12.0 ms" in texts(figure)
    assert "links 3.00 ms" in texts(figure)
    assert "floor" not in texts(figure)
