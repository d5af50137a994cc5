"""The race: what is drawn of it, against what the store says in SQL that shares nothing with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.figures.race import DASHES
from app.panels import race
from app.panels.view import Moment, View
from app.theme import DARK, LIGHT
from telemetry.queries import live
from telemetry.queries import race as queries
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.raced import MODES, begin, finish, mark, raced, start
from tests.app.synthetic import RUN_ID, Simulation

LIVE = Moment(is_live=True)


@pytest.fixture(scope="module")
def finished() -> Iterator[Reader]:
    store = Store(None)
    raced().write(store)
    yield store.reader()
    store.close()


def view(reader: Reader, moment: Moment = LIVE) -> View:
    return race.panels(reader, RUN_ID, {}, LIGHT, moment)


def wrote(store: Store, simulation: Simulation) -> Reader:
    simulation.write(store)
    return store.reader()


def traces(figure: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [trace for trace in figure["data"] if trace["name"] == name]


def texts(figure: dict[str, Any]) -> list[str]:
    return [note["text"] for note in figure["layout"]["annotations"]]


def by_hand(reader: Reader, leg: int) -> dict[str, Any]:
    """Requests 9 to 48 are the first leg's, 49 to 88 the second's."""
    low = 9 + 40 * leg
    found = reader.row(
        """
        SELECT (SELECT max(t_ns) FROM tokens WHERE request_id BETWEEN $low AND $high) AS last_ns,
               min(arrived_ns) AS first_ns, sum(output_tokens) AS tokens, count(*) AS requests,
               max(first_token_ns - arrived_ns) / 1e9 AS worst_ttft_s,
               (SELECT count(*) FILTER (phase = 'padded') FROM sequence_steps
                WHERE request_id BETWEEN $low AND $high) AS padded,
               (SELECT count(DISTINCT step) FROM sequence_steps
                WHERE request_id BETWEEN $low AND $high) AS steps
        FROM requests WHERE request_id BETWEEN $low AND $high
        """,
        {"low": low, "high": low + 39},
    )
    assert found is not None
    return found


@pytest.mark.parametrize("leg", [0, 1])
def test_the_numbers_of_a_leg_are_those_of_its_requests(finished: Reader, leg: int) -> None:
    row = queries.legs(finished, RUN_ID, "first").to_dict("records")[leg]
    hand = by_hand(finished, leg)
    makespan_s = (hand["last_ns"] - hand["first_ns"]) / 1e9
    assert row["mode"] == MODES[leg]
    assert (row["requests"], row["answered"], row["tokens"]) == (40, 40, hand["tokens"])
    assert row["makespan_s"] == makespan_s
    assert row["tokens_per_s"] == pytest.approx(hand["tokens"] / makespan_s)
    assert row["worst_ttft_s"] == hand["worst_ttft_s"]
    assert row["steps"] == hand["steps"]
    assert row["padded_slot_fraction"] == pytest.approx(hand["padded"] / (10 * hand["steps"]))


def test_both_legs_are_on_one_clock_from_their_first_request(finished: Reader) -> None:
    figure = view(finished).figures["race"]
    for leg, name in enumerate(("y", "y2")):
        hand = by_hand(finished, leg)
        bars = [t for t in figure["data"] if t["type"] == "bar" and t.get("yaxis", "y") == name]
        starts = [x for t in bars for x in t["base"]]
        ends = [x + w for t in bars for x, w in zip(t["base"], t["x"], strict=True)]
        assert min(starts) == pytest.approx(0, abs=1e-3)
        makespan_s = (hand["last_ns"] - hand["first_ns"]) / 1e9
        assert max(ends) == pytest.approx(makespan_s, abs=1e-3)


def test_the_static_side_shows_its_nine_padded_slots(finished: Reader) -> None:
    figure = view(finished).figures["race"]
    static, continuous = traces(figure, "padding")
    assert len(static["x"]) == 4 * 9, "four cohorts, nine of ten each"
    assert static["marker"]["pattern"]["shape"] == "/"
    assert continuous["x"] == []
    notes = [text for text in texts(figure) if "slots wait" in text]
    held = finished.value(
        """
        SELECT max(s) FROM (SELECT sum(t_step_s) AS s FROM steps
          WHERE padded_slots = 9 GROUP BY (SELECT min(request_id) FROM sequence_steps q
                                           WHERE q.step = steps.step))"""
    )
    assert notes == [f"9 slots wait {held:.2f} s for 1"]


def test_the_finish_line_crosses_both_panels_and_says_what_the_other_had_done(
    finished: Reader,
) -> None:
    figure = view(finished).figures["race"]
    hand = by_hand(finished, 1)
    makespan_s = (hand["last_ns"] - hand["first_ns"]) / 1e9
    lines = figure["layout"]["shapes"]
    crossing = next(line for line in lines if line["line"]["dash"] == "dash")
    assert (crossing["y0"], crossing["y1"]) == (0.0, 1.0)
    assert crossing["x0"] == crossing["x1"] == makespan_s
    first_ns = by_hand(finished, 0)["first_ns"]
    behind = finished.value(
        "SELECT count(*) FROM requests WHERE request_id BETWEEN 9 AND 48 AND finished_ns <= $by",
        {"by": first_ns + hand["last_ns"] - hand["first_ns"]},
    )
    assert 0 < behind < 40
    sentence = next(text for text in texts(figure) if text.startswith("<b>continuous done"))
    assert "all 40 requests answered" in sentence
    assert f"static has answered {behind}" in sentence


def test_runs_differ_by_ink_not_by_a_role_colour(finished: Reader) -> None:
    for look in (LIGHT, DARK):
        figure = race.panels(finished, RUN_ID, {}, look, LIVE).figures["race"]
        waiting = [t for t in figure["data"] if t["name"].startswith("waiting")]
        assert [t["line"]["dash"] for t in waiting] == list(DASHES[:2])
        assert {t["line"]["color"] for t in waiting} == {look.text}
        assert {t["yaxis"] for t in waiting} == {"y3"}


def test_words_and_numbers_beside_the_panels(finished: Reader) -> None:
    made = view(finished).html
    rows = queries.legs(finished, RUN_ID, "first").to_dict("records")
    static, continuous = (f"{row['makespan_s']:.2f} s" for row in rows)
    times = rows[0]["makespan_s"] / rows[1]["makespan_s"]
    told = f"Same 40 requests, 10 slots: static {static}, continuous {continuous} "
    assert told + f"(×{times:.2f} faster)." in made["headline"]
    for row in rows:
        section = made["numbers"].split(f'data-mode="{row["mode"]}"')[1].split("</section>")[0]
        assert f"{row['tokens_per_s']:.0f} tok/s" in section
        assert f"{row['makespan_s']:.2f} s" in section
        assert f"{row['worst_ttft_s']:.2f} s" in section
    assert f"{100 * rows[0]['padded_slot_fraction']:.1f}%" in made["numbers"]


def test_the_replay_knows_from_when_each_note_holds(finished: Reader) -> None:
    layout = view(finished).figures["race"]["layout"]
    meta = layout["meta"]["race"]
    assert not meta["recording"]
    assert len(meta["shown"]["annotations"]) == len(layout["annotations"])
    assert len(meta["shown"]["shapes"]) == len(layout["shapes"]) == 2
    assert meta["end_s"] == max(leg["finish_s"] for leg in meta["legs"])
    for leg in meta["legs"]:
        assert len(leg["answered_s"]) == 40
        assert leg["answered_s"] == sorted(leg["answered_s"])
        assert leg["answered_s"][-1] == pytest.approx(leg["finish_s"], abs=1e-3)
    assert meta["legs"][1]["finish_s"] in meta["shown"]["annotations"]


def test_each_leg_is_drawn_while_it_records(store: Store) -> None:
    simulation = Simulation()
    begin(simulation, "r")
    reader = wrote(store, simulation)
    assert "about to begin" in view(reader).html["headline"]
    assert view(reader).figures == {}
    assert "static and continuous, one after the other" in view(reader).html["blank"]
    start(simulation, "r", 0, "static")
    for _ in range(30):
        simulation.advance()
    reader = wrote(store, simulation)
    made = view(reader)
    answered = reader.value("SELECT count(*) FROM requests WHERE finish_reason IS NOT NULL")
    assert f"Recording static: {answered} of 40 requests" in made.html["headline"]
    assert "Then continuous" in made.html["headline"]
    figure = made.figures["race"]
    assert figure["layout"]["meta"]["race"]["recording"]
    assert figure["layout"]["shapes"] == []
    assert {"yaxis", "yaxis2", "yaxis3"} <= figure["layout"].keys()
    finish(simulation, "r", 0, "static")
    start(simulation, "r", 1, "continuous")
    for _ in range(5):
        simulation.advance()
    made = view(wrote(store, simulation))
    assert "Recording continuous" in made.html["headline"]
    assert len(made.figures["race"]["layout"]["shapes"]) == 1


def test_a_pause_is_on_neither_clock(store: Store) -> None:
    simulation = Simulation()
    begin(simulation, "r")
    start(simulation, "r", 0, "static")
    for _ in range(100):
        simulation.advance()
    simulation.event("pause")
    simulation.now_ns += 5_000_000_000
    simulation.event("resume")
    finish(simulation, "r", 0, "static")
    reader = wrote(store, simulation)
    (row,) = queries.legs(reader, RUN_ID, "r").to_dict("records")
    hand = reader.row("SELECT min(arrived_ns) AS a, max(finished_ns) AS b FROM requests")
    assert hand is not None
    assert row["makespan_s"] == pytest.approx((hand["b"] - hand["a"]) / 1e9 - 5.0)
    figure = view(reader).figures["race"]
    bars = [t for t in figure["data"] if t["type"] == "bar"]
    ends = [x + w for t in bars for x, w in zip(t["base"], t["x"], strict=True)]
    assert max(ends) == pytest.approx(row["makespan_s"], abs=1e-3)


def test_a_prompt_that_somebody_typed_is_nobody_s_request(store: Store) -> None:
    simulation = Simulation()
    begin(simulation, "r")
    start(simulation, "r", 0, "static")
    simulation.advance()
    simulation.arrive(1)
    finish(simulation, "r", 0, "static")
    simulation.write(store)
    (before,) = queries.legs(store.reader(), RUN_ID, "r").to_dict("records")
    assert before["requests"] == 41
    typed = [{**row, "label": "prompt"} for row in simulation._request_rows()[-1:]]
    simulation._request_rows = lambda: typed  # type: ignore[method-assign]
    (row,) = queries.legs(wrote(store, simulation), RUN_ID, "r").to_dict("records")
    assert (row["requests"], row["answered"]) == (40, 40)


def test_the_newest_race_is_shown_unless_one_is_named(store: Store) -> None:
    reader = wrote(store, raced("second", raced("first")))
    assert list(queries.races(reader, RUN_ID)["race"]) == ["first", "second"]
    asked: list[dict[str, str]] = [{}, {"race": "first"}, {"race": "no such"}]
    made = [race.panels(reader, RUN_ID, params, LIGHT, LIVE) for params in asked]
    shown = [v.figures["race"]["layout"]["meta"]["race"]["race"] for v in made]
    assert shown == ["second", "first", "second"]


def test_a_race_that_was_cancelled_says_why(store: Store) -> None:
    simulation = Simulation()
    begin(simulation, "r")
    start(simulation, "r", 0, "static")
    for _ in range(40):
        simulation.advance()
    mark(simulation, "r", "cancelled", reason="somebody changed scheduler")
    while simulation.advance():
        pass
    reader = wrote(store, simulation)
    made = view(reader)
    assert "did not finish" in made.html["headline"]
    assert "somebody changed scheduler" in made.html["headline"]
    (row,) = queries.legs(reader, RUN_ID, "r").to_dict("records")
    assert row["steps"] == 40, "what ran afterwards is not the race's"
    assert not row["ended"]


def test_a_recorded_race_without_an_end_is_not_recording(store: Store) -> None:
    simulation = Simulation()
    begin(simulation, "r")
    start(simulation, "r", 0, "static")
    simulation.advance()
    reader = wrote(store, simulation)
    made = view(reader, Moment())
    assert "the recording has no end of it" in made.html["headline"]
    assert not made.figures["race"]["layout"]["meta"]["race"]["recording"]


@pytest.mark.parametrize("moment", [LIVE, Moment()])
def test_a_run_without_a_race_says_so(reader: Reader, moment: Moment) -> None:
    made = race.panels(reader, RUN_ID, {}, LIGHT, moment)
    assert made.figures == {}
    assert "No race" in made.html["headline"]
    assert "No race yet" in made.html["blank"]


def test_a_run_without_steps_says_so(store: Store) -> None:
    made = race.panels(store.reader(), "nothing", {}, LIGHT, Moment())
    assert "No race" in made.html["headline"]


def test_slots_that_were_not_reported_are_not_drawn_as_empty(store: Store) -> None:
    simulation = raced()
    simulation.rows["sequence_steps"] = []
    figure = view(wrote(store, simulation)).figures["race"]
    told = [t for t in texts(figure) if t == "Who held which slot is not reported by this source."]
    assert len(told) == 2
    assert not any("slots wait" in text for text in texts(figure))


def test_too_many_segments_become_cells(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.queries.scheduling.MAX_SEGMENTS", 50)
    reader = wrote(store, raced())
    static, continuous = traces(view(reader).figures["race"], "phase")
    assert (len(static["z"]), len(continuous["z"])) == (10, 10)
    row = queries.legs(reader, RUN_ID, "first").to_dict("records")[0]
    end_s = static["x0"] + static["dx"] * (len(static["z"][0]) - 0.5)
    assert end_s == pytest.approx(row["makespan_s"], abs=1e-3)


def test_other_pages_mark_the_start_of_each_leg_alone(finished: Reader) -> None:
    newest = live.newest(finished, RUN_ID)
    assert newest is not None
    marks = live.marks(finished, RUN_ID, int(newest["end_ns"]), 600)
    mine = [json.loads(detail) for detail in marks[marks["kind"] == "race"]["detail"]]
    assert [(m["part"], m["mode"]) for m in mine] == [("start", mode) for mode in MODES]
