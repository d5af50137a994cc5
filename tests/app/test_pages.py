"""Pages without a browser: widgets show the engine's state and send what was chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import app.dashboard
from app import state
from engine.messages import Load
from telemetry.store import Store
from tests.app.fake import FakeSession, status
from tests.app.synthetic import race

SCRIPT = Path(__file__).resolve().parents[2] / "app" / "dashboard.py"
PAGES = ["live", "roofline", "scheduling"]


@pytest.fixture
def fake() -> Iterator[FakeSession]:
    store = Store(None)
    race().write(store)
    made = FakeSession(store)
    state.hold(made)
    yield made
    state.hold(None)
    store.close()


def opened(page: str = "live") -> AppTest:
    at = AppTest.from_file(str(SCRIPT), default_timeout=30)
    if page != "live":
        at.switch_page(f"../pages/{page}.py")
    return at.run()


@pytest.mark.parametrize("page", PAGES)
def test_pages_run_in_every_phase(page: str, fake: FakeSession) -> None:
    assert not opened(page).exception
    state.hold(None)
    assert not opened(page).exception
    state.hold(None, "no such model file")
    assert not opened(page).exception


def badge(at: AppTest) -> str:
    return next(e.body for e in at.get("html") if 'class="ss-badge' in e.body)


def test_the_badge_says_starting_only_while_it_starts(fake: FakeSession) -> None:
    fake.run_id = None
    assert "the engine is starting" in badge(opened())
    fake.failure = "no such model file"
    assert "the engine has stopped" in badge(opened())
    state.hold(None, "no such model file")
    assert "the engine has stopped" in badge(opened())
    state.hold(None)
    assert "the engine is starting" in badge(opened())


def test_widgets_show_the_engines_state(fake: FakeSession) -> None:
    fake.status = status(scheduler="static", max_batch=24, paused=True, load=Load("skew", 12))
    at = opened()
    assert at.session_state["scheduler"] == "static"
    assert at.selectbox(key="workload").value == "skew"
    assert at.selectbox(key="arrivals").value == "12 streams"
    assert at.selectbox(key="max_batch").value == "batch 24"
    assert at.button(key="pause").label == "Resume"
    assert not at.button(key="step").disabled


def test_another_tabs_change_shows_on_the_next_run(fake: FakeSession) -> None:
    at = opened()
    assert at.session_state["scheduler"] == "continuous"
    fake.status = status(scheduler="no-batching", load=None)
    at.run()
    assert at.session_state["scheduler"] == "no-batching"
    assert at.selectbox(key="arrivals").value == "no load"


def test_an_echo_of_the_old_value_does_not_undo_another_tabs_change(
    fake: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timed rerun that was under way carries what the widget showed before it followed."""
    at = opened()
    fake.status = status(max_batch=24)
    at.run()
    at.selectbox(key="max_batch").select("batch 10").run()
    assert fake.asked == []
    assert at.selectbox(key="max_batch").value == "batch 24"
    at.selectbox(key="max_batch").select("batch 32").run()
    assert fake.asked == [("configure", {"max_batch": 32})]
    monkeypatch.setattr("app.follow.ECHO_S", 0.0)
    fake.status = status(max_batch=16)
    at.run()
    at.selectbox(key="max_batch").select("batch 32").run()
    assert fake.asked[1:] == [("configure", {"max_batch": 32})]


def test_a_choice_reaches_the_engine(fake: FakeSession) -> None:
    at = opened()
    at.selectbox(key="max_batch").select("batch 32").run()
    assert ("configure", {"max_batch": 32}) in fake.asked
    at.selectbox(key="arrivals").select("8 streams").run()
    assert fake.status is not None
    assert fake.status.load == Load("steady", 8, None)
    at.selectbox(key="arrivals").select("2 requests/s").run()
    assert fake.status.load == Load("steady", None, 2.0)
    at.selectbox(key="workload").select("skew").run()
    assert fake.status.load == Load("skew", None, 2.0)
    at.selectbox(key="arrivals").select("no load").run()
    assert fake.asked[-1][0] == "stop_load"


def test_a_click_is_kept_until_the_engine_answers(fake: FakeSession) -> None:
    """A rerun before the engine confirmed must not throw the widget back."""
    fake.deaf = True
    at = opened()
    at.selectbox(key="max_batch").select("batch 32").run()
    at.run()
    assert at.selectbox(key="max_batch").value == "batch 32"


def test_a_refused_change_returns_to_the_truth(
    fake: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.follow.PATIENCE_S", 0.0)
    fake.deaf = True
    at = opened()
    at.selectbox(key="max_batch").select("batch 32").run()
    at.run()
    assert at.selectbox(key="max_batch").value == "batch 10"


def test_pause_resume_and_step(fake: FakeSession) -> None:
    at = opened()
    assert at.button(key="step").disabled
    at.button(key="pause").click().run()
    at.run()
    at.button(key="step").click().run()
    at.button(key="pause").click().run()
    assert [a[0] for a in fake.asked] == ["pause", "step_once", "resume"]


def test_a_prompt_and_a_preset_are_submitted(fake: FakeSession) -> None:
    at = opened()
    at.chat_input(key="asked").set_value("Why?").run()
    at.button(key="Why is the sky blue?").click().run()
    assert fake.asked == [("submit", "Why?"), ("submit", "Why is the sky blue?")]


def test_a_recorded_run_has_no_engine_to_command(fake: FakeSession) -> None:
    fake.run_id = "another"
    at = opened()
    recorded = [o for o in at.selectbox(key="run").options if "SmolLM2" in o]
    assert len(recorded) == 1
    at.selectbox(key="run").select("r-synthetic").run()
    assert at.button(key="pause").disabled
    assert at.selectbox(key="workload").disabled
    assert at.chat_input(key="asked").disabled


def test_pages_stay_thin() -> None:
    folder = app.dashboard.PAGES
    for page in PAGES:
        assert len((folder / f"{page}.py").read_text().splitlines()) <= 60
