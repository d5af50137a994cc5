"""Scheduling: segments as the store holds them, merged, by phase, with what was waited for."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from app.figures.gantt import Window, gantt, heat
from app.theme import LIGHT
from telemetry.queries import live
from telemetry.queries import scheduling as queries
from telemetry.reader import Reader
from tests.app.synthetic import RUN_ID

SPAN_S = 12.0


@pytest.fixture
def end_ns(reader: Reader) -> int:
    newest = live.newest(reader, RUN_ID)
    assert newest is not None
    return int(newest["end_ns"])


def draw(reader: Reader, end_ns: int, **window: Any) -> dict[str, Any]:
    shape = Window(SPAN_S, 10, **window)
    lanes = queries.segments(reader, RUN_ID, end_ns, SPAN_S, shape.by)
    queue = queries.waiting(reader, RUN_ID, end_ns, SPAN_S)
    held = live.first(queries.longest_hold(reader, RUN_ID, end_ns, SPAN_S))
    return gantt(lanes, queue, live.marks(reader, RUN_ID, end_ns, SPAN_S), held, shape, LIGHT)


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(t for t in figure["data"] if t["name"] == name)


def test_segments_cover_exactly_the_sequence_steps(reader: Reader, end_ns: int) -> None:
    """Steps inside the merged segments, counted again, are the rows they came from."""
    lanes = queries.segments(reader, RUN_ID, end_ns, SPAN_S)
    rows = reader.value(
        "SELECT count(*) FROM sequence_steps s JOIN steps USING (run_id, step) "
        "WHERE run_id = $run AND t_start_ns >= $since",
        {"run": RUN_ID, "since": end_ns - int(SPAN_S * 1e9)},
    )
    assert (lanes["last_step"] - lanes["first_step"] + 1).sum() == rows
    assert len(lanes) < rows / 5


def test_neighbours_in_a_lane_differ(reader: Reader, end_ns: int) -> None:
    lanes = queries.segments(reader, RUN_ID, end_ns, SPAN_S)
    for _, lane in lanes.groupby("lane"):
        ordered = lane.sort_values("first_step")
        joined = ordered["first_step"].shift(-1) == ordered["last_step"] + 1
        same = (ordered["phase"].shift(-1) == ordered["phase"]) & (
            ordered["request_id"].shift(-1) == ordered["request_id"]
        )
        assert not (joined & same).any()


def test_one_trace_a_phase_in_its_colour(reader: Reader, end_ns: int) -> None:
    figure = draw(reader, end_ns)
    assert trace(figure, "prefill")["marker"]["color"] == LIGHT.prefill
    assert trace(figure, "decode")["marker"]["color"] == LIGHT.decode
    assert trace(figure, "padding")["marker"]["pattern"]["shape"] == "/"
    assert trace(figure, "idle")["marker"]["color"] == "rgba(0,0,0,0)"
    lanes = queries.segments(reader, RUN_ID, end_ns, SPAN_S)
    assert len(trace(figure, "padding")["x"]) == (lanes["phase"] == "padded").sum() > 0
    total = lanes[lanes["phase"] == "decode"].eval("end_s - start_s").sum()
    assert sum(trace(figure, "decode")["x"]) == pytest.approx(total, rel=1e-3)


def test_by_steps_the_axis_counts_steps(reader: Reader, end_ns: int) -> None:
    figure = draw(reader, end_ns, steps=True, first_step=300, last_step=967)
    assert figure["layout"]["xaxis"]["title"]["text"] == "step"
    assert all(x == int(x) for x in trace(figure, "decode")["x"])


def test_by_request_every_request_has_a_row(reader: Reader, end_ns: int) -> None:
    figure = draw(reader, end_ns, by="request")
    lanes = queries.segments(reader, RUN_ID, end_ns, SPAN_S, "request")
    rows = {y for t in figure["data"] if t["type"] == "bar" for y in t["y"]}
    assert len(rows) == lanes["lane"].nunique()


def test_waiting_is_the_queue_of_the_store(reader: Reader, end_ns: int) -> None:
    line = trace(draw(reader, end_ns), "waiting")
    most = reader.value(
        "SELECT max(n_waiting) FROM steps WHERE run_id = $run AND t_start_ns >= $since",
        {"run": RUN_ID, "since": end_ns - int(SPAN_S * 1e9)},
    )
    assert max(line["y"]) == most == 30
    assert line["yaxis"] == "y2"


def test_the_longest_hold_is_told(reader: Reader, end_ns: int) -> None:
    figure = draw(reader, end_ns)
    text = next(a["text"] for a in figure["layout"]["annotations"] if "wait" in a["text"])
    assert text.startswith("9 slots wait 1.")
    assert text.endswith("for 1")


def test_padding_and_rates_are_the_stores(reader: Reader, end_ns: int) -> None:
    summary = queries.summary(reader, RUN_ID, end_ns, SPAN_S).set_index("scheduler")
    since = {"run": RUN_ID, "since": end_ns - int(SPAN_S * 1e9)}
    share = reader.value(
        "SELECT sum(padded_slots) / sum(batch_slots) FROM steps WHERE run_id = $run "
        "AND scheduler = 'static' AND t_start_ns >= $since",
        since,
    )
    assert summary.loc["static", "padded_slot_fraction"] == share
    assert summary.loc["continuous", "padded_slot_fraction"] == 0
    worst = reader.value(
        "SELECT max(ttft_s) FROM request_latency WHERE run_id = $run AND request_id >= 59",
        {"run": RUN_ID},
    )
    assert summary.loc["continuous", "worst_ttft_s"] == worst


def test_an_outline_where_a_request_was_held(reader: Reader, end_ns: int) -> None:
    lanes = pd.DataFrame(
        {
            "lane": [0, 0],
            "request_id": [1, 1],
            "phase": ["decode", "decode"],
            "first_step": [0, 5],
            "last_step": [2, 9],
            "start_s": [-3.0, -1.0],
            "end_s": [-2.5, 0.0],
            "tokens": [3, 5],
        }
    )
    empty = live.marks(reader, RUN_ID, 0, 1.0)
    queue = pd.DataFrame({"step": [0], "x_s": [-3.0], "n_waiting": [0]})
    figure = gantt(lanes, queue, empty, None, Window(5.0, 1), LIGHT)
    held = trace(figure, "held by others' prefill")
    assert held["base"] == [-2.5]
    assert held["x"] == [1.5]


def test_too_many_segments_become_a_heatmap(reader: Reader, end_ns: int) -> None:
    cells = queries.heat(reader, RUN_ID, end_ns, SPAN_S)
    queue = queries.waiting(reader, RUN_ID, end_ns, SPAN_S)
    marks = live.marks(reader, RUN_ID, end_ns, SPAN_S)
    figure = heat(cells, queue, marks, Window(SPAN_S, 10), queries.HEAT_COLUMNS, LIGHT)
    grid = trace(figure, "phase")["z"]
    assert len(grid) == 10
    assert len(grid[0]) == queries.HEAT_COLUMNS
    assert {v for row in grid for v in row} == {None, 0, 1, 3}
