"""Pages about a stretch of steps that somebody holds: what they show is of those steps alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.live.views import VIEWS
from app.panels import live, roofline, scheduling
from app.panels.view import Moment, View
from app.theme import LIGHT
from app.units import count, duration, percent, three
from telemetry.queries import live as queries
from telemetry.queries.windows import steps_between
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.synthetic import RUN_ID, Simulation, race

FIRST, LAST = 330, 450
HELD = {"first": str(FIRST), "last": str(LAST)}
RUNNING = Moment(is_live=True, now_ns=10**18)
OF_STEPS = ["live", "roofline", "scheduling", "kv-cache", "requests", "interference"]


def rows(reader: Reader, what: str, first: int = FIRST, last: int = LAST) -> dict[str, Any]:
    """Of the steps of the window, straight from the store."""
    sql = f"SELECT {what} FROM steps WHERE run_id = $run AND step BETWEEN $first AND $last"
    row = reader.row(sql, {"run": RUN_ID, "first": first, "last": last})
    assert row is not None
    return row


def held(reader: Reader, moment: Moment = RUNNING, **more: str) -> View:
    return live.panels(reader, RUN_ID, {**HELD, **more}, LIGHT, moment)


def span_s(reader: Reader) -> float:
    ends = rows(reader, "min(t_start_ns) AS a, max(t_start_ns + round(t_step_s * 1e9)) AS b")
    return float(ends["b"] - ends["a"]) / 1e9


@pytest.mark.parametrize("name", OF_STEPS)
def test_every_page_says_which_steps_it_holds_and_how_to_follow(name: str, reader: Reader) -> None:
    view = VIEWS[name](reader, RUN_ID, HELD, LIGHT, RUNNING)
    json.dumps(view.figures, allow_nan=False)
    assert view.html["counter"] == f"steps {FIRST} to {LAST}"
    text = view.html["headline"] + view.html["counter"]
    assert "Idle" not in text
    assert "newest" not in text


@pytest.mark.parametrize("name", ["live", "roofline", "scheduling", "kv-cache", "requests"])
def test_the_control_follows_or_lets_go(name: str, reader: Reader) -> None:
    control = VIEWS[name](reader, RUN_ID, HELD, LIGHT, RUNNING).html["window"]
    assert control.startswith(f"held {duration(span_s(reader))}")
    assert '<button type="button" data-window="follow">follow</button>' in control
    recorded = VIEWS[name](reader, RUN_ID, HELD, LIGHT, Moment()).html["window"]
    assert ">show its end</button>" in recorded
    follows = VIEWS[name](reader, RUN_ID, {}, LIGHT, RUNNING).html["window"]
    assert follows.startswith("following · ")
    assert "button" not in follows


def test_live_is_about_the_stretch(reader: Reader) -> None:
    view = held(reader)
    made = reader.value(
        "SELECT count(*) FROM tokens WHERE run_id = $run AND step BETWEEN $first AND $last",
        {"run": RUN_ID, "first": FIRST, "last": LAST},
    )
    rate = three(made / span_s(reader))
    assert f"Steps {FIRST} to {LAST}, static: {rate} tokens/s over" in view.html["headline"]
    facts = rows(reader, "max(n_running) AS r, max(n_waiting) AS w, max(kv_blocks_used) AS kv")
    tiles = view.html["tiles"]
    assert "last second" not in tiles
    assert f'class="value">{rate} <small>over {duration(span_s(reader))}' in tiles
    assert f'class="value">{facts["r"]} <small>at most, of 10 slots' in tiles
    assert f'class="value">{facts["w"]} <small>limited by: sequences' in tiles
    assert f'class="value">{percent(facts["kv"] / 640)} <small>at most {facts["kv"]} of' in tiles
    worst = reader.value(
        "SELECT max(itl_s) FROM itl WHERE run_id = $run AND t_ns > $a AND t_ns <= $b",
        {
            "run": RUN_ID,
            **rows(
                reader,
                "min(t_start_ns) AS a, max(t_start_ns + "
                "CAST(round(t_step_s * 1e9) AS BIGINT)) AS b",
            ),
        },
    )
    assert f'worst gap</div><div class="value">{duration(worst)} ' in tiles


def test_nothing_of_a_held_page_changes_when_steps_are_added(store: Store) -> None:
    simulation = race()
    simulation.write(store)
    before = held(store.reader())
    simulation.arrive(12, prompt=400)
    while simulation.advance():
        pass
    simulation.switch("static")
    simulation.write(store)
    for name in ("live", "roofline", "scheduling"):
        made = VIEWS[name](store.reader(), RUN_ID, HELD, LIGHT, RUNNING)
        assert made.html["counter"] == before.html["counter"]
    assert held(store.reader()) == before


def test_the_strip_draws_the_steps_of_the_window_and_no_other(reader: Reader) -> None:
    figure = held(reader).figures["strip"]
    bars = [t for t in figure["data"] if t["type"] == "bar" and "customdata" in t]
    assert sorted(s for t in bars for s in t["customdata"]) == list(range(FIRST, LAST + 1))
    low, high = figure["layout"]["xaxis"]["range"]
    assert (low, high) == (pytest.approx(-span_s(reader), abs=1e-6), 0)
    for trace in bars:
        for x, width in zip(trace["x"], trace["width"], strict=True):
            assert low - 1e-3 <= x - width / 2
            assert x + width / 2 <= 1e-3
    assert figure["layout"]["xaxis"]["title"]["text"].endswith(f"the end of step {LAST}")


def test_marks_beyond_the_window_are_not_drawn(reader: Reader) -> None:
    events = rows(reader, "min(t_start_ns) AS a, max(t_start_ns) AS b")
    between = reader.value(
        "SELECT count(*) FROM events WHERE run_id = $run AND t_ns BETWEEN $a AND $b",
        {"run": RUN_ID, **events},
    )
    total = reader.value("SELECT count(*) FROM events WHERE run_id = $run", {"run": RUN_ID})
    lines = next(t for t in held(reader).figures["strip"]["data"] if t["name"] == "marks")
    assert len(lines["x"]) == 3 * between
    assert between < total


def test_a_drag_and_a_click_carry_what_they_choose(reader: Reader) -> None:
    meta = held(reader).figures["strip"]["layout"]["meta"]
    end = rows(reader, "max(t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT)) AS end_ns")
    assert meta["selects"] == {"xaxis": str(end["end_ns"])}
    assert meta["steps"] == {"by": "x", "first": FIRST, "last": LAST}


def test_the_anatomy_is_of_the_median_steps_of_the_window(reader: Reader) -> None:
    found = queries.anatomy_of(reader, RUN_ID, FIRST, LAST)
    for row in found.to_dict("records"):
        times = reader.frame(
            "SELECT step, t_step_s FROM steps WHERE run_id = $run AND phase = $phase "
            "AND step BETWEEN $first AND $last ORDER BY t_step_s, step",
            {"run": RUN_ID, "phase": row["phase"], "first": FIRST, "last": LAST},
        )
        assert row["n"] == len(times)
        assert row["step"] == times["step"].iloc[(len(times) - 1) // 2]
    titles = [a["text"] for a in held(reader).figures["anatomy"]["layout"]["annotations"]]
    decode = found[found["phase"] == "decode"]["n"].iloc[0]
    assert any(t.startswith("<b>decode</b>") and f"median of {decode}" in t for t in titles)


def prefill_step(reader: Reader) -> int:
    step = rows(reader, "arg_max(step, t_step_s) AS step")["step"]
    assert rows(reader, "phase", step, step)["phase"] != "decode"
    return int(step)


def test_a_clicked_step_is_explained(reader: Reader) -> None:
    step = prefill_step(reader)
    view = held(reader, step=str(step))
    row = rows(reader, "phase, t_step_s, t_compute_s, t_memory_s, prefill_tokens", step, step)
    decode = queries.anatomy_of(reader, RUN_ID, FIRST, LAST).set_index("phase").loc["decode"]
    text = view.html["headline"]
    assert f"Step {step}, {row['phase']}: {row['prefill_tokens']} prompt tokens" in text
    assert f"in {duration(row['t_step_s'])}." in text
    assert f"×{three(row['t_step_s'] / decode['t_step_s'])} the median decode step" in text
    assert f"math alone takes {duration(row['t_compute_s'])}." in text
    titles = [a["text"] for a in view.figures["anatomy"]["layout"]["annotations"]]
    assert any(f"<b>selected step {step}</b>" in t for t in titles)


def test_it_says_who_got_what_and_which_limit_bound_it(reader: Reader) -> None:
    step = prefill_step(reader)
    got = reader.frame(
        "SELECT request_id, phase, tokens FROM sequence_steps WHERE run_id = $run AND step = $step",
        {"run": RUN_ID, "step": step},
    )
    answer = held(reader, step=str(step)).html["answer"]
    assert f"Who got what in step {step}" in answer
    assert "limited by: sequences" in answer
    assert answer.count("<span") == len(got) > 5
    for row in got.to_dict("records"):
        words = f"prefill {row['tokens']}" if row["phase"] == "prefill" else "+1"
        assert f"r-{row['request_id']} {words}</span>" in answer


def test_its_bar_is_outlined_where_and_as_long_as_it_was(reader: Reader) -> None:
    step = prefill_step(reader)
    figure = held(reader, step=str(step)).figures["strip"]
    mark = next(t for t in figure["data"] if t["name"] == "selected")
    drawn = next(t for t in figure["data"] if step in t.get("customdata", []))
    at = drawn["customdata"].index(step)
    assert mark["x"] == pytest.approx([drawn["x"][at]], abs=2e-4)
    assert mark["width"] == pytest.approx([drawn["width"][at]], abs=2e-4)
    assert mark["y"] == [drawn["y"][at]]
    texts = [a["text"] for a in figure["layout"]["annotations"]]
    assert sum(f"step {step} · " in t for t in texts) == 1


@pytest.mark.parametrize("step", [str(FIRST - 1), str(LAST + 1), "x", "-3", "9" * 30, "٣٦٠"])
def test_a_step_outside_of_the_window_is_not_selected(step: str, reader: Reader) -> None:
    assert held(reader, step=step) == held(reader)


def test_paused_or_not_a_held_page_is_about_its_steps(reader: Reader) -> None:
    step = str(prefill_step(reader))
    paused = Moment(is_live=True, paused=True)
    assert held(reader, paused).html["headline"] == held(reader).html["headline"]
    view = held(reader, paused, step=step)
    assert "Paused" not in view.html["headline"]
    assert view.html["answer"] == held(reader, step=step).html["answer"]


def test_a_step_of_the_newest_window_is_told_without_taking_the_answer(reader: Reader) -> None:
    view = live.panels(reader, RUN_ID, {"step": "960"}, LIGHT, RUNNING)
    assert view.html["headline"].startswith("<b>Step 960, ")
    assert "answer" not in view.html
    paused = live.panels(reader, RUN_ID, {"step": "960"}, LIGHT, Moment(True, True))
    assert "Who got what in step 960" in paused.html["answer"]


def test_a_pause_is_no_time_in_which_nothing_came(store: Store) -> None:
    simulation = Simulation()
    simulation.arrive(4)
    for _ in range(10):
        simulation.advance()
    simulation.event("pause")
    simulation.now_ns += 60_000_000_000
    simulation.event("resume")
    while simulation.advance():
        pass
    simulation.write(store)
    reader = store.reader()
    view = live.panels(reader, RUN_ID, {"first": "0", "last": "19"}, LIGHT, RUNNING)
    ran_s = reader.value("SELECT sum(t_step_s) FROM steps WHERE step < 20")
    made = reader.value("SELECT count(*) FROM tokens WHERE step < 20")
    told = f"{three(made / ran_s)} tokens/s over {duration(ran_s)} unpaused"
    assert told in view.html["headline"]


def test_one_step_is_a_window_too(reader: Reader) -> None:
    for name in OF_STEPS:
        view = VIEWS[name](reader, RUN_ID, {"first": "350", "last": "350"}, LIGHT, RUNNING)
        json.dumps(view.figures, allow_nan=False)
    view = live.panels(reader, RUN_ID, {"first": "350", "last": "350"}, LIGHT, RUNNING)
    assert "Step 350, static:" in view.html["headline"]


def test_both_schedulers_of_a_stretch_are_named_in_their_order(reader: Reader) -> None:
    first = reader.value("SELECT min(step) FROM steps WHERE scheduler = 'static'")
    last = reader.value("SELECT max(step) FROM steps WHERE scheduler = 'static'")
    view = live.panels(reader, RUN_ID, {"first": str(first), "last": str(last + 5)}, LIGHT)
    assert "static and continuous:" in view.html["headline"]


def of_a_source_without(store: Store, *tables: str) -> View:
    simulation = race()
    for table in tables:
        simulation.rows[table] = []
    simulation.write(store)
    return held(store.reader(), step="350")


def test_tokens_that_no_source_reports_are_no_rate_of_zero(store: Store) -> None:
    tiles = of_a_source_without(store, "tokens").html["tiles"]
    assert 'tokens/s</div><div class="value">– ' in tiles
    follows = live.panels(store.reader(), RUN_ID, {}, LIGHT, Moment())
    assert 'tokens/s</div><div class="value">– ' in follows.html["tiles"]


def test_who_got_what_may_not_be_reported(store: Store) -> None:
    answer = of_a_source_without(store, "sequence_steps").html["answer"]
    assert "not reported by this source" in answer


def roofline_of(reader: Reader, **more: str) -> View:
    return roofline.panels(reader, RUN_ID, {**HELD, **more}, LIGHT, RUNNING)


def test_roofline_shows_the_stretch_and_its_last_or_clicked_step(reader: Reader) -> None:
    for more, step in (({}, LAST), ({"step": "360"}, 360)):
        view = roofline_of(reader, **more)
        data = {t["name"]: t for t in view.figures["roofline"]["data"]}
        assert data["live"]["customdata"] == [step]
        drawn = data["decode"]["customdata"] + data["with prefill"]["customdata"]
        assert min(drawn) >= FIRST
        assert max(drawn) <= LAST
        row = rows(reader, "intensity", step, step)
        assert view.html["headline"].startswith(f"<b>Step {step}: {three(row['intensity'])} FLOP")
        assert view.figures["roofline"]["layout"]["meta"]["steps"]["by"] == "point"


def test_roofline_medians_are_of_the_stretch(reader: Reader) -> None:
    data = roofline_of(reader).figures["crossover"]["data"]
    dots = next(t for t in data if t["name"].startswith("measured"))
    wanted = reader.frame(
        "SELECT decode_seqs + padded_slots AS batch, median(t_step_s) * 1e3 AS ms FROM steps "
        "WHERE run_id = $run AND phase = 'decode' AND step BETWEEN $first AND $last "
        "GROUP BY 1 HAVING count(*) >= 3 ORDER BY 1",
        {"run": RUN_ID, "first": FIRST, "last": LAST},
    )
    assert dots["x"] == list(wanted["batch"])
    assert dots["y"] == pytest.approx(list(wanted["ms"]), rel=1e-3)


@pytest.mark.parametrize("x", ["time", "steps"])
def test_scheduling_draws_the_slots_of_the_stretch(x: str, reader: Reader) -> None:
    view = scheduling.panels(reader, RUN_ID, {**HELD, "x": x}, LIGHT, RUNNING)
    figure = view.figures["gantt"]
    held_s = reader.value(
        "SELECT sum(t_step_s) FROM steps JOIN sequence_steps q USING (run_id, step) "
        "WHERE run_id = $run AND q.phase = 'padded' AND step BETWEEN $first AND $last",
        {"run": RUN_ID, "first": FIRST, "last": LAST},
    )
    padding = next(t for t in figure["data"] if t["name"] == "padding")
    if x == "time":
        assert sum(padding["x"]) == pytest.approx(held_s, rel=0.01)
        assert figure["layout"]["xaxis"]["range"] == [pytest.approx(-span_s(reader)), 0]
    else:
        assert figure["layout"]["xaxis"]["range"] == [FIRST, LAST + 1]
        assert figure["layout"]["meta"]["selects"] == {"xaxis": "step"}
    made = reader.value(
        "SELECT count(*) FROM tokens WHERE run_id = $run AND step BETWEEN $first AND $last",
        {"run": RUN_ID, "first": FIRST, "last": LAST},
    )
    assert f"static: {three(made / span_s(reader))} tokens/s" in view.html["headline"]
    assert f"{count(LAST - FIRST + 1)} steps" in view.html["numbers"]


def test_steps_between_two_instants_are_those_that_ran_then(reader: Reader) -> None:
    a, b = (rows(reader, "t_start_ns", s, s)["t_start_ns"] for s in (400, 401))
    assert steps_between(reader, RUN_ID, a, b) == (400, 400)
    assert steps_between(reader, RUN_ID, a + 1, b + 1) == (400, 401)
    assert steps_between(reader, RUN_ID, 0, 1) is None
    assert steps_between(reader, "no such run", a, b) is None


def test_a_run_that_was_idle_holds_what_it_did(store: Store) -> None:
    """An idle engine's present has no place in a held window."""
    simulation = Simulation()
    simulation.arrive(3)
    while simulation.advance():
        pass
    simulation.write(store)
    view = live.panels(store.reader(), RUN_ID, {"first": "2", "last": "9"}, LIGHT, RUNNING)
    assert "Idle" not in view.html["headline"]
    assert 'running</div><div class="value">3 ' in view.html["tiles"]
