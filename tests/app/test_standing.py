"""An engine that does not run now: no live rate, what its last step was, who got what in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app import state
from app.live import views
from app.panels import live, roofline, scheduling
from app.panels.view import Moment, Panels, View
from app.theme import LIGHT
from app.units import duration
from telemetry.queries import live as queries
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.fake import FakeSession, status
from tests.app.synthetic import RUN_ID, Simulation

PAUSED = Moment(True, True)


def drained(store: Store) -> Reader:
    """Eight requests, all of them answered."""
    simulation = Simulation()
    simulation.arrive(8)
    while simulation.advance():
        pass
    simulation.write(store)
    return store.reader()


def stopped_midway(store: Store) -> Reader:
    """Three slots: one sequence decodes, then two prompts come in and one must wait."""
    simulation = Simulation(slots=3)
    simulation.arrive(1)
    simulation.advance()
    simulation.arrive(3)
    simulation.advance()
    simulation.write(store)
    return store.reader()


def after(reader: Reader, seconds: float) -> View:
    newest = queries.newest(reader, RUN_ID)
    assert newest is not None
    moment = Moment(True, False, int(newest["end_ns"]) + int(seconds * 1e9))
    return live.panels(reader, RUN_ID, {}, LIGHT, moment)


def tile_of(view: View, name: str) -> str:
    """The number of a tile with its remark."""
    found = view.html["tiles"].split(f'<div class="name">{name}</div><div class="value">')[1]
    return found.split("</small>")[0].replace("<small>", "")


def test_an_idle_engine_says_for_how_long_and_makes_nothing(store: Store) -> None:
    reader = drained(store)
    view = after(reader, 12.4)
    assert view.html["headline"].startswith("<b>Idle for 12 s.</b>")
    assert "decode: 1 decoded in" in view.html["headline"]
    assert tile_of(view, "tokens/s") == "0 last second"
    assert tile_of(view, "running") == "0 of 10 slots"
    assert tile_of(view, "KV cache").startswith("0%")
    assert "<b>Idle for 3 min.</b>" in after(reader, 185).html["headline"]


def test_an_idle_engine_still_lists_what_it_did_last(store: Store) -> None:
    view = after(drained(store), 185)
    assert view.html["stream"].count('class="row ended"') == 5
    assert "0 running · 0 waiting · 0 finished" in view.html["stream"]
    assert "TTFT" not in view.html["tiles"], "nothing of it is lately"


def test_a_moment_without_a_step_is_not_idle_yet(store: Store) -> None:
    view = after(drained(store), 0.5)
    assert "tokens/s at" in view.html["headline"]
    assert not tile_of(view, "tokens/s").startswith("0 ")


def test_a_long_step_is_not_idle(store: Store) -> None:
    view = after(stopped_midway(store), 30.0)
    assert "Idle" not in view.html["headline"]
    assert tile_of(view, "running") == "3 of 3 slots"


def test_a_recorded_run_is_never_idle(store: Store) -> None:
    view = live.panels(drained(store), RUN_ID, {}, LIGHT)
    assert "tokens/s at" in view.html["headline"]
    assert "answer" not in view.html


def test_paused_says_where_and_what_the_step_did(store: Store) -> None:
    view = live.panels(stopped_midway(store), RUN_ID, {}, LIGHT, PAUSED)
    assert view.html["headline"].startswith("<b>Paused at step 1.</b>")
    assert "mixed: " in view.html["headline"]
    assert tile_of(view, "tokens/s") == "0 paused"


def test_paused_tells_who_got_what_and_the_limit(store: Store) -> None:
    reader = stopped_midway(store)
    html = live.panels(reader, RUN_ID, {}, LIGHT, PAUSED).html["answer"]
    prompts = reader.rows("SELECT prompt_tokens FROM requests ORDER BY request_id")
    assert "limited by: sequences" in html
    assert ">r-0 +1<" in html
    assert f">r-1 prefill {prompts[1][0]}<" in html
    assert f">r-2 prefill {prompts[2][0]}<" in html
    assert "r-3" not in html


def test_paused_tells_what_the_step_cost(store: Store) -> None:
    reader = stopped_midway(store)
    html = live.panels(reader, RUN_ID, {}, LIGHT, PAUSED).html["answer"]
    row = reader.row("SELECT * FROM steps ORDER BY step DESC LIMIT 1")
    assert row is not None
    assert row["t_compute_s"] > row["t_memory_s"]
    assert (
        f"it took {duration(row['t_step_s'])}: math at least {duration(row['t_compute_s'])}, "
        in (html)
    )
    assert f"below roof {duration(row['t_inefficiency_s'])}, host {duration(row['t_host_s'])}" in (
        html
    )


def test_a_pause_pins_the_anatomy_to_the_step_at_which_it_stands(store: Store) -> None:
    simulation = Simulation()
    simulation.arrive(4)
    for _ in range(30):
        simulation.advance()
    simulation.write(store)
    reader = store.reader()
    titles = {}
    for name, moment in (("runs", Moment(True, False, 0)), ("stands", PAUSED)):
        figure = live.panels(reader, RUN_ID, {}, LIGHT, moment).figures["anatomy"]
        titles[name] = figure["layout"]["annotations"][0]["text"]
        measured = sum(t["x"][0] for t in figure["data"] if t.get("y") == ["measured"])
    assert "step 29" not in titles["runs"], "a median"
    assert titles["stands"].endswith("<b>step 29</b>")
    took = reader.value("SELECT t_step_s FROM steps WHERE step = 29")
    prompts = reader.value("SELECT max(t_step_s) FROM steps WHERE phase = 'prefill'")
    assert measured == pytest.approx((took + prompts) * 1e3, rel=1e-3)


@pytest.mark.parametrize("panels", [roofline.panels, scheduling.panels])
def test_the_counter_of_the_other_pages_says_it(panels: Panels, store: Store) -> None:
    reader = drained(store)
    newest = queries.newest(reader, RUN_ID)
    assert newest is not None
    late = Moment(True, False, int(newest["end_ns"]) + 9_000_000_000)
    step = f"step {newest['step']}"
    assert panels(reader, RUN_ID, {}, LIGHT, PAUSED).html["counter"] == f"{step} · paused"
    assert panels(reader, RUN_ID, {}, LIGHT, late).html["counter"] == f"{step} · idle 9 s"
    assert panels(reader, RUN_ID, {}, LIGHT).html["counter"] == step


@pytest.fixture
def fake(store: Store) -> Iterator[FakeSession]:
    drained(store)
    made = FakeSession(store)
    state.hold(made)
    yield made
    state.hold(None)


def test_the_version_follows_pause_and_seconds(
    fake: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100_000_000_000]
    monkeypatch.setattr(views, "now_ns", lambda: clock[0])
    running, recorded = views.Request("live"), views.Request("live", run=RUN_ID)
    first, past = views.version(running), views.version(recorded)
    clock[0] += 200_000_000
    assert views.version(running) == first
    clock[0] += 1_000_000_000
    assert views.version(running) != first
    assert views.version(recorded) == past
    fake.status = status(paused=True, load=None)
    held = views.version(running)
    clock[0] += 5_000_000_000
    assert views.version(running) == held != first


def test_the_page_of_the_live_run_shows_the_pause(fake: FakeSession) -> None:
    fake.status = status(paused=True, load=None)
    with fake.store.reader() as reader:
        now = views.render(views.Request("live"), reader)
        then = views.render(views.Request("live", run=RUN_ID), reader)
    assert "Paused at step" in now.html["headline"]
    assert "Who got what" in now.html["answer"]
    assert "Paused" not in then.html["headline"]
    assert "Who got what" not in then.html["answer"]
