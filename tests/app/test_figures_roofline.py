"""The roofline and the crossover: points as counted, roofs as measured."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from app.figures.crossover import crossover, intensity
from app.figures.plane import Decode, Peaks
from app.figures.roofline import roofline
from app.panels.roofline_cost import decode_of
from app.theme import DARK, LIGHT
from engine.physics.cost import ChunkWork, count_step
from engine.physics.roofline import decode_intensity
from telemetry.queries import live
from telemetry.queries import roofline as queries
from telemetry.reader import Reader
from tests.app.synthetic import PEAK_BANDWIDTH, PEAK_FLOPS, RUN_ID, SMOLLM2

PEAKS = Peaks(PEAK_FLOPS, PEAK_BANDWIDTH, "measured")


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [t for t in figure["data"] if t["name"] == name]
    return found


@pytest.fixture
def decode(reader: Reader) -> Decode:
    run = live.run(reader, RUN_ID)
    assert run is not None
    found = decode_of(queries.decode_costs(reader, RUN_ID), run)
    assert found is not None
    return found


def draw(reader: Reader, decode: Decode | None, **more: Any) -> dict[str, Any]:
    cloud = queries.cloud(reader, RUN_ID, 60.0)
    peaks = more.pop("peaks", PEAKS)
    return roofline(cloud, queries.trail(reader, RUN_ID), peaks, decode, LIGHT, **more)


def test_the_live_point_is_the_newest_step(reader: Reader, decode: Decode) -> None:
    figure = draw(reader, decode)
    row = reader.row(
        "SELECT intensity, flops / t_step_s AS done, step FROM steps WHERE run_id = $run "
        "ORDER BY step DESC LIMIT 1",
        {"run": RUN_ID},
    )
    assert row is not None
    live = trace(figure, "live")
    assert live["x"] == [pytest.approx(row["intensity"], rel=1e-3)]
    assert live["y"] == [pytest.approx(row["done"], rel=1e-3)]
    assert live["marker"]["size"] == 16
    assert len(trace(figure, "last 20 steps")["x"]) == 20


def test_roofs_meet_at_the_ridge_in_their_roles(reader: Reader, decode: Decode) -> None:
    figure = draw(reader, decode)
    slope, flat = trace(figure, "memory roof"), trace(figure, "compute roof")
    assert slope["line"] == {"color": LIGHT.memory, "width": 3, "dash": "solid"}
    assert flat["line"] == {"color": LIGHT.compute, "width": 3, "dash": "solid"}
    assert slope["x"][1] == flat["x"][0] == pytest.approx(PEAKS.ridge, rel=1e-4)
    assert flat["y"] == [pytest.approx(PEAK_FLOPS)] * 2
    assert slope["y"][0] == pytest.approx(0.5 * PEAK_BANDWIDTH)


def test_datasheet_roofs_are_dashed(reader: Reader) -> None:
    figure = draw(reader, None, peaks=Peaks(PEAK_FLOPS, PEAK_BANDWIDTH, "datasheet"))
    assert trace(figure, "memory roof")["line"]["dash"] == "dash"


@pytest.mark.parametrize(("bandwidth", "apart"), [(3350e9, True), (98.9e12, False)])
def test_the_ridge_is_never_written_over_the_roofs_name(
    reader: Reader, bandwidth: float, apart: bool
) -> None:
    """An H100's ridge of 295 is where the name of its compute roof stands."""
    figure = draw(reader, None, peaks=Peaks(989e12, bandwidth, "datasheet"))
    notes = {n["text"].split()[0]: n for n in figure["layout"]["annotations"]}
    gap_px = notes["ridge"].get("yshift", 0) - notes["compute"]["yshift"]
    assert (gap_px >= 17) == apart


def test_the_drop_line_ends_on_the_roof(reader: Reader, decode: Decode) -> None:
    figure = draw(reader, decode)
    line, live = trace(figure, "drop line"), trace(figure, "live")
    assert line["x"] == [pytest.approx(live["x"][0], rel=1e-3)] * 2
    assert line["y"][1] == pytest.approx(PEAKS.roof(live["x"][0]), rel=1e-3)
    share = 100 * live["y"][0] / line["y"][1]
    text = next(a["text"] for a in figure["layout"]["annotations"] if "of roof" in a["text"])
    assert float(text.removeprefix("<b>").split("%")[0]) == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize(("intensity", "side"), [(0.6, "left"), (5.0, "left"), (200.0, "right")])
def test_the_share_of_the_roof_is_never_cut_off(
    reader: Reader, decode: Decode, intensity: float, side: str
) -> None:
    trail = queries.trail(reader, RUN_ID)
    trail.loc[trail.index[-1], "intensity"] = intensity
    figure = roofline(queries.cloud(reader, RUN_ID, 60.0), trail, PEAKS, decode, LIGHT)
    text = next(a for a in figure["layout"]["annotations"] if "of roof" in a["text"])
    assert text["xanchor"] == side
    assert text["xshift"] * (1 if side == "left" else -1) > 0


def test_normalised_puts_ridge_and_peak_at_one(reader: Reader, decode: Decode) -> None:
    figure = draw(reader, decode, normalised=True)
    flat = trace(figure, "compute roof")
    assert flat["x"][0] == pytest.approx(1)
    assert flat["y"] == [pytest.approx(1)] * 2
    absolute = trace(draw(reader, decode), "live")
    live = trace(figure, "live")
    assert live["x"][0] == pytest.approx(absolute["x"][0] / PEAKS.ridge, rel=1e-3)
    assert live["y"][0] == pytest.approx(absolute["y"][0] / PEAK_FLOPS, rel=1e-3)


def test_axes_come_from_the_peaks_and_stay(reader: Reader, decode: Decode) -> None:
    cloud = queries.cloud(reader, RUN_ID, 60.0)
    near = cloud[cloud["intensity"] < 200]
    figure = roofline(near, queries.trail(reader, RUN_ID), PEAKS, decode, LIGHT)
    low, high = figure["layout"]["xaxis"]["range"]
    assert 10**low == pytest.approx(0.5)
    assert 10**high == pytest.approx(4 * max(PEAKS.ridge, 64))
    wider = roofline(cloud.assign(intensity=300.0), cloud, PEAKS, None, LIGHT)
    assert wider["layout"]["xaxis"]["range"][1] == pytest.approx(high + math.log10(2))
    assert "whole step" in figure["layout"]["yaxis"]["title"]["text"]


def test_steps_over_the_roof_are_ringed(reader: Reader, decode: Decode) -> None:
    low = Peaks(PEAK_FLOPS, PEAK_BANDWIDTH / 3, "measured")
    figure = draw(reader, decode, peaks=low)
    ringed = trace(figure, "above the roof")
    assert all(y > low.roof(x) for x, y in zip(ringed["x"], ringed["y"], strict=True))
    assert any("recalibrate" in a["text"] for a in figure["layout"]["annotations"])
    honest = draw(reader, decode)
    assert not [t for t in honest["data"] if t["name"] == "above the roof"]


def test_without_peaks_there_is_no_roof(reader: Reader) -> None:
    figure = draw(reader, None, peaks=None)
    names = {t["name"] for t in figure["data"]}
    assert names.isdisjoint({"memory roof", "compute roof", "drop line"})
    assert "live" in names


def test_clouds_are_thinned_but_span_the_window(reader: Reader) -> None:
    cloud = queries.cloud(reader, RUN_ID, 60.0)
    assert set(cloud["phase"]) == {"prefill", "decode", "mixed"}
    assert (cloud["phase"] == "decode").sum() <= queries.CLOUD_POINTS + 1
    figure = draw(reader, None)
    assert trace(figure, "decode")["marker"]["opacity"] == 0.25
    assert trace(figure, "decode")["marker"]["color"] == LIGHT.decode


def test_batch_axis_places_batches_where_the_counts_do(decode: Decode) -> None:
    """The model read off one counted step redraws another batch of the same context."""
    context = round(decode.context)
    for batch in (1, 8, 64):
        work = [ChunkWork(1, context - 1, 0, 1)] * batch
        counted = count_step(SMOLLM2, work, "bf16", "bf16").intensity
        assert decode_intensity(decode.model, batch, context) == pytest.approx(counted, rel=0.01)


def test_intensity_curve_ends_under_its_asymptote(decode: Decode) -> None:
    figure = intensity(decode, PEAKS, 4, DARK)
    curve, cap = trace(figure, "decode"), trace(figure, "KV cap")
    assert curve["y"] == sorted(curve["y"])
    assert curve["y"][-1] < cap["y"][0]
    assert trace(figure, "live")["x"] == [4]
    assert any("KV caps this at" in a["text"] for a in figure["layout"]["annotations"])


def test_crossover_draws_medians_of_the_store(reader: Reader, decode: Decode) -> None:
    measured = queries.measured_by_batch(reader, RUN_ID)
    figure = crossover(decode, PEAKS, measured, (1.0, 0.0129), LIGHT)
    dots = trace(figure, "measured median, P10–P90")
    ten = reader.value(
        "SELECT median(t_step_s) FROM steps WHERE run_id = $run AND phase = 'decode' "
        "AND decode_seqs + padded_slots = 10",
        {"run": RUN_ID},
    )
    assert dict(zip(dots["x"], dots["y"], strict=True))[10] == pytest.approx(ten * 1e3, rel=1e-3)
    weights = trace(figure, "weights")
    assert weights["y"][0] == weights["y"][-1]
    assert trace(figure, "weights + KV")["line"]["color"] == LIGHT.memory
    assert trace(figure, "math")["line"]["color"] == LIGHT.compute


def test_curves_cross_where_the_physics_says(reader: Reader, decode: Decode) -> None:
    figure = crossover(decode, PEAKS, pd.DataFrame({"t_step_s": []}), None, LIGHT)
    xs, memory = trace(figure, "weights + KV")["x"], trace(figure, "weights + KV")["y"]
    compute = trace(figure, "math")["y"]
    cross = next(x for x, m, c in zip(xs, memory, compute, strict=True) if c > m)
    label = next(a["text"] for a in figure["layout"]["annotations"] if a["text"].startswith("B* "))
    assert float(label.removeprefix("B* with KV <b>").removesuffix("</b>")) == pytest.approx(
        cross, rel=2**0.25 - 1
    )


def test_no_crossover_says_why(decode: Decode) -> None:
    fast = Peaks(PEAK_FLOPS * 100, PEAK_BANDWIDTH, "datasheet")
    figure = crossover(decode, fast, pd.DataFrame({"t_step_s": []}), None, LIGHT)
    assert any("no crossover" in a["text"] for a in figure["layout"]["annotations"])
    assert math.isfinite(figure["layout"]["yaxis"]["range"][1])
