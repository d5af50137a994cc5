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
from telemetry.store import Store
from tests.app.synthetic import RUN_ID, Simulation

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


def test_a_long_window_is_read_in_pieces(
    reader: Reader, end_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lane in ("slot", "request"):
        whole = queries.segments(reader, RUN_ID, end_ns, SPAN_S, lane)
        with monkeypatch.context() as patched:
            patched.setattr(queries, "_STEPS_AT_ONCE", 37)
            pieces = queries.segments(reader, RUN_ID, end_ns, SPAN_S, lane)
        pd.testing.assert_frame_equal(pieces, whole)


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


def held(
    reader: Reader,
    *segments: tuple[int, int, str, int, int],
    trace_of: str = "held by others' prefill",
    **window: Any,
) -> Any:
    """A trace over segments (lane, request, phase, first step, last step) of 0.1 s steps."""
    names = ["lane", "request_id", "phase", "first_step", "last_step"]
    lanes = pd.DataFrame(segments, columns=names)
    lanes = lanes.assign(start_s=lanes["first_step"] / 10 - 5, end_s=lanes["last_step"] / 10 - 4.9)
    lanes["tokens"] = 1
    queue = pd.DataFrame({"step": [0], "x_s": [-3.0], "n_waiting": [0]})
    none = live.marks(reader, "no such run", 0, 1.0)
    figure = gantt(lanes, queue, none, None, Window(5.0, 3, **window), LIGHT)
    return trace(figure, trace_of)


def test_an_outline_where_others_prefill_held_a_request(reader: Reader) -> None:
    """Lane 0 gets nothing in steps 3 to 8; others prefill in 4, 5 and 7, one beside another."""
    lane = [(0, 1, "decode", 0, 2), (0, 1, "decode", 9, 12)]
    prompts = [(1, 2, "prefill", 4, 5), (2, 3, "prefill", 5, 5), (1, 2, "prefill", 7, 7)]
    outline = held(reader, *lane, *prompts)
    assert outline["base"] == pytest.approx([-4.6, -4.3])
    assert outline["x"] == pytest.approx([0.2, 0.1])
    assert outline["y"] == [1, 1]
    assert held(reader, *lane, *prompts, steps=True)["base"] == [4, 7]


def test_a_preempted_request_held_nothing_and_holds_others(reader: Reader) -> None:
    """Request 1 is out in steps 3 to 5 while others prefill, and recomputes in 6 and 7."""
    out = [(0, 1, "decode", 0, 2), (0, 1, "recompute", 6, 7), (1, 2, "prefill", 4, 5)]
    assert held(reader, *out)["x"] == []
    beside = [(2, 3, "decode", 3, 5), (2, 3, "decode", 8, 9)]
    assert held(reader, *out, *beside)["y"] == [3]


def test_recomputing_is_drawn_as_lost(reader: Reader) -> None:
    outline = held(reader, (0, 1, "recompute", 0, 2), (0, 1, "decode", 3, 4), trace_of="recompute")
    assert outline["marker"]["color"] == LIGHT.lost
    assert outline["x"] == pytest.approx([0.3])


@pytest.mark.parametrize(
    "more",
    [
        [],
        [(1, 2, "decode", 3, 8)],
        [(1, 2, "prefill", 0, 2), (1, 2, "prefill", 9, 10)],
        [(1, 1, "prefill", 4, 6)],
        [(0, 2, "prefill", 4, 6)],
    ],
    ids=["nothing ran", "decode ran", "before and after", "its own, in another slot", "lane taken"],
)
def test_no_outline_without_others_prefill(reader: Reader, more: list[Any]) -> None:
    lane = [(0, 1, "decode", 0, 2), (0, 1, "decode", 9, 12)]
    assert held(reader, *lane, *more)["x"] == []


def stop_and_go(store: Store, rest_s: float) -> tuple[Reader, Simulation]:
    """One request: five steps, a rest, and its others."""
    simulation = Simulation(slots=1)
    simulation.arrive(1)
    for _ in range(5):
        simulation.advance()
    simulation.now_ns += int(rest_s * 1e9)
    while simulation.advance():
        pass
    simulation.write(store)
    return store.reader(), simulation


def test_segments_end_where_nothing_ran(store: Store) -> None:
    reader, simulation = stop_and_go(store, 3.0)
    rows = queries.segments(reader, RUN_ID, simulation.now_ns, 20.0)
    decode = rows[rows["phase"] == "decode"]
    assert list(decode["first_step"]) == [1, 5]
    assert decode["start_s"].iloc[1] - decode["end_s"].iloc[0] == pytest.approx(3.0)
    assert (decode["end_s"] - decode["start_s"]).max() < 3.0


def test_a_breath_between_steps_does_not_part_them(store: Store) -> None:
    reader, simulation = stop_and_go(store, 0.0005)
    rows = queries.segments(reader, RUN_ID, simulation.now_ns, 20.0)
    assert len(rows[rows["phase"] == "decode"]) == 1


def test_rates_are_over_the_time_a_scheduler_was_in_charge(store: Store) -> None:
    """Idle time counts for who was in charge, on each side of a switch; a pause does not."""
    simulation = Simulation(slots=1)
    simulation.arrive(1)
    while simulation.advance():
        pass
    made, busy_ns = len(simulation.rows["tokens"]), simulation.now_ns - 5_000_000_000
    simulation.now_ns += 2_000_000_000
    simulation.switch("static")
    simulation.now_ns += 1_000_000_000
    simulation.event("pause")
    simulation.now_ns += 7_000_000_000
    simulation.event("resume")
    resumed_ns = simulation.now_ns
    simulation.arrive(1)
    while simulation.advance():
        pass
    static_s = 1.0 + (simulation.now_ns - resumed_ns) / 1e9
    simulation.write(store)
    rows = queries.summary(store.reader(), RUN_ID, simulation.now_ns, 60.0).set_index("scheduler")
    assert rows.loc["continuous", "held_s"] == pytest.approx(2.0 + busy_ns / 1e9)
    assert rows.loc["static", "held_s"] == pytest.approx(static_s)
    rate = made / (2.0 + busy_ns / 1e9)
    assert rows.loc["continuous", "tokens_per_s"] == pytest.approx(rate)


@pytest.mark.parametrize("steps", [False, True])
def test_events_after_the_newest_step_are_drawn_at_once(store: Store, steps: bool) -> None:
    """A pause while paused, as the newest step's end; both axes, and the switch before it."""
    simulation = Simulation(slots=2)
    simulation.arrive(2)
    for _ in range(6):
        simulation.advance()
    simulation.switch("static")
    switched_ns = simulation.now_ns
    for _ in range(6):
        simulation.advance()
    end_ns = simulation.now_ns
    simulation.now_ns += 4_000_000_000
    simulation.event("pause")
    simulation.write(store)
    reader = store.reader()
    marks = live.marks(reader, RUN_ID, end_ns, SPAN_S)
    rows = queries.segments(reader, RUN_ID, end_ns, SPAN_S)
    queue = queries.waiting(reader, RUN_ID, end_ns, SPAN_S)
    shape = Window(SPAN_S, 2, steps=steps, first_step=0, last_step=11)
    figure = gantt(rows, queue, marks, None, shape, LIGHT)
    at = [6, 12] if steps else [pytest.approx((switched_ns - end_ns) / 1e9, abs=1e-3), 0]
    for line in (t for t in figure["data"] if t["name"] == "marks"):
        assert line["x"][::3] == at
    texts = {a["text"]: a["x"] for a in figure["layout"]["annotations"]}
    assert texts["pause"] == at[1]
    if steps:
        assert texts["→ static"] == at[0]


def test_marks_of_single_steps_are_one_pause(store: Store) -> None:
    simulation = Simulation()
    simulation.arrive(1)
    simulation.advance()
    simulation.event("pause", '{"single_step": false}')
    for _ in range(3):
        simulation.event("resume", '{"single_step": true}')
        simulation.advance()
        simulation.event("pause", '{"single_step": true}')
    simulation.write(store)
    marks = live.marks(store.reader(), RUN_ID, simulation.now_ns, SPAN_S)
    assert list(marks["kind"]) == ["pause"]


def test_too_many_segments_become_a_heatmap(reader: Reader, end_ns: int) -> None:
    cells = queries.heat(reader, RUN_ID, end_ns, SPAN_S)
    queue = queries.waiting(reader, RUN_ID, end_ns, SPAN_S)
    marks = live.marks(reader, RUN_ID, end_ns, SPAN_S)
    figure = heat(cells, queue, marks, Window(SPAN_S, 10), queries.HEAT_COLUMNS, LIGHT)
    grid = trace(figure, "phase")["z"]
    assert len(grid) == 10
    assert len(grid[0]) == queries.HEAT_COLUMNS
    assert {v for row in grid for v in row} == {None, 0, 1, 3}
