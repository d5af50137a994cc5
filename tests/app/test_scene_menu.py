"""The Scene button of every page, without a browser: it sets engine, page, controls and address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import state
from app.scenes import SCENES, Scene
from engine.messages import Load
from telemetry.store import Store
from tests.app.fake import FakeSession, ready, status
from tests.app.synthetic import RUN_ID, race
from tests.app.test_pages import PAGES, SCRIPT, opened


@pytest.fixture
def fake() -> Iterator[FakeSession]:
    store = Store(None)
    race().write(store)
    known = ready()
    workloads = ("skew", "steady", "longoutput", "longcontext")
    limits = {**known.limits, "kv_blocks_capacity": 1456}
    made = FakeSession(store, ready=replace(known, limits=limits, workloads=workloads))
    state.hold(made)
    yield made
    state.hold(None)
    store.close()


def menu(at: AppTest) -> Any:
    """The box of this turn, which shows no scene."""
    found = next(box for box in at.selectbox if str(box.key).startswith("scene~"))
    assert found.value is None
    return found


def play(at: AppTest, scene: Scene) -> AppTest:
    menu(at).select(scene.name).run()
    assert not at.exception
    return at


def holds(at: AppTest, scene: Scene) -> None:
    """Every control of its page that the scene names stands as it says."""
    for key, value in {**scene.address, **scene.controls}.items():
        if key != "race":  # a choice that is there when a run has several
            assert at.session_state[key] == value, key


def told(at: AppTest) -> list[str]:
    return [toast.value for toast in at.toast]


@pytest.mark.parametrize("page", [*PAGES, "what_if", "kernels"])
def test_every_page_offers_every_scene(fake: FakeSession, page: str) -> None:
    options = menu(opened(page)).options
    assert options == [f"{n}  {name}" for n, name in enumerate(SCENES, 1)]


def test_a_scene_leads_away_from_the_page_without_a_run(fake: FakeSession) -> None:
    holds(play(opened("what_if"), SCENES["Modelled H100"]), SCENES["Modelled H100"])


@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
def test_it_opens_its_page_with_its_controls_and_says_what_to_look_for(
    fake: FakeSession, scene: Scene
) -> None:
    at = play(opened("kv_cache"), scene)
    holds(at, scene)
    assert told(at) == [f"**{scene.name}.** {scene.look_for}"]
    at.run()
    assert told(at) == []
    assert len([a for a in fake.asked if a[0] in ("load", "ramp", "stop_load", "new_run")]) == 1


def test_on_its_own_page_it_sets_the_controls_that_are_there(fake: FakeSession) -> None:
    at = opened("interference")
    at.selectbox(key="length").select(256).run()
    at.segmented_control(key="show").set_value("over time").run()
    at.button(key="pin").click().run()
    assert at.session_state["pinned_a"] is not None
    holds(play(at, SCENES["One long prompt"]), SCENES["One long prompt"])
    assert at.selectbox(key="length").value == 1024
    at = opened("scheduling")
    holds(play(at, SCENES["The race"]), SCENES["The race"])
    at.number_input(key="race_requests").set_value(6).run()
    at.button_group(key="race_modes").set_value(["static", "chunked"]).run()
    holds(play(at, SCENES["The race"]), SCENES["The race"])


def test_the_same_scene_plays_as_often_as_it_is_chosen(fake: FakeSession) -> None:
    at = opened("roofline")
    for _ in range(2):
        play(at, SCENES["Long contexts"])
        fake.status = status(load=None)
    assert [asked[0] for asked in fake.asked] == ["configure", "load"] * 2


def test_from_a_past_run_and_a_held_window_it_shows_the_live_run(fake: FakeSession) -> None:
    fake.run_id = "another"
    at = AppTest.from_file(str(SCRIPT), default_timeout=30)
    for name, value in (("run", RUN_ID), ("first", "60"), ("last", "90")):
        at.query_params[name] = value
    at.run()
    assert at.session_state["run"] == RUN_ID
    play(at, SCENES["Climb the roof"])
    assert at.session_state["run"] == "live"
    assert not {"run", "first", "last"} & set(at.query_params)
    assert fake.asked[-1][0] == "ramp"


def test_what_cannot_be_is_told_and_nothing_moves(fake: FakeSession) -> None:
    at = opened("kv_cache")
    fake.phase = "starting"
    play(at, SCENES["The race"])
    assert told(at) == ["the engine is starting: choose the scene when it runs"]
    fake.failure = "the engine ended by itself"
    play(at, SCENES["The race"])
    assert told(at) == ["the engine has stopped: restart Stepscope, then choose the scene"]
    assert fake.asked == []
    assert at.segmented_control(key="map").value == "by request"


def test_less_than_it_wants_is_one_more_line(fake: FakeSession) -> None:
    assert fake.ready is not None
    fake.ready = replace(fake.ready, limits={**fake.ready.limits, "kv_blocks_capacity": 70})
    at = play(opened(), SCENES["Climb the roof"])
    assert told(at)[1:] == ["The KV blocks here hold 4 of its 32 streams at once."]
    assert fake.status is not None
    assert fake.status.load == Load("longoutput", 1)


def test_a_way_back_from_a_modelled_run_is_named_where_words_matter(fake: FakeSession) -> None:
    assert fake.ready is not None
    fake.ready = replace(fake.ready, run={**fake.ready.run, "clock": "modelled"})
    assert "new run: this CPU" in told(play(opened(), SCENES["Type a prompt"]))[1]
