"""Pages without a browser: widgets show the engine's state and send what was chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

import app.dashboard
from app import frame, state
from app.main import live_page
from engine.messages import Load, Rejected
from telemetry.store import Store
from tests.app.boxes import box, switch, value
from tests.app.fake import FakeSession, status
from tests.app.synthetic import race

SCRIPT = Path(__file__).resolve().parents[2] / "app" / "dashboard.py"
PAGES = ["live", "roofline", "interference", "scheduling", "kv_cache", "requests", "kernels"]


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
        at.run()  # until the navigation has run, a page whose address is not its file's is unknown
        at.switch_page(f"../pages/{page}.py")
    return at.run()


def type_in(at: AppTest, key: str, text: str) -> None:
    """As a browser does; the testing tool by itself only selects what is offered."""
    typed = box(at, key)
    typed.options.append(text)
    typed.set_value(text).run()


@pytest.mark.parametrize("page", PAGES)
def test_pages_run_in_every_phase(page: str, fake: FakeSession) -> None:
    assert not opened(page).exception
    state.hold(None)
    assert not opened(page).exception
    state.hold(None, "no such model file")
    assert not opened(page).exception


def test_no_page_takes_what_was_chosen_on_another(fake: FakeSession) -> None:
    """A browser keeps a choice by its key: two kinds of choice under one key would mix."""
    kinds: dict[str, set[tuple[str, ...]]] = {}
    for page in PAGES:
        at = opened(page)
        for kind in ("button_group", "selectbox"):
            for control in at.get(kind):
                kinds.setdefault(control.key, set()).add(tuple(control.options))
    assert {key for key, options in kinds.items() if len(options) > 1} == set()
    assert {"scheduler", "show", "state", "map", "view", "sort"} <= kinds.keys()


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
    assert value(at, "scheduler") == "static"
    assert box(at, "workload").value == "skew"
    assert box(at, "arrivals").value == "12 streams"
    assert box(at, "max_batch").value == "batch 24"
    assert at.button(key="pause").label == "Resume"
    assert not at.button(key="step").disabled


def test_another_tabs_change_shows_on_the_next_run(fake: FakeSession) -> None:
    at = opened()
    assert value(at, "scheduler") == "continuous"
    fake.status = status(scheduler="no-batching", load=None)
    at.run()
    assert value(at, "scheduler") == "no-batching"
    assert box(at, "arrivals").value == "no load"


def test_a_choice_reaches_the_engine(fake: FakeSession) -> None:
    at = opened()
    box(at, "max_batch").select("batch 32").run()
    assert ("configure", {"max_batch": 32}) in fake.asked
    box(at, "arrivals").select("8 streams").run()
    assert fake.status is not None
    assert fake.status.load == Load("steady", 8, None)
    box(at, "arrivals").select("2 requests/s").run()
    assert fake.status.load == Load("steady", None, 2.0)
    box(at, "workload").select("skew").run()
    assert fake.status.load == Load("skew", None, 2.0)
    box(at, "arrivals").select("no load").run()
    assert fake.asked[-1][0] == "stop_load"


def test_the_limits_of_a_step_are_the_engines(fake: FakeSession) -> None:
    limits = {"chunk_tokens": 96, "kv_blocks": 77, "prefix_cache": True, "scheduler": "chunked"}
    fake.status = status(**limits)
    at = opened()
    assert value(at, "scheduler") == "chunked"
    assert box(at, "chunk_tokens").value == "budget 96"
    assert box(at, "kv_blocks").value == "KV 77"
    assert box(at, "kv_blocks").options[0] == "KV 640"
    assert switch(at, "prefix_cache").value is True
    box(at, "chunk_tokens").select("budget 64").run()
    box(at, "kv_blocks").select("KV 160").run()
    switch(at, "prefix_cache").set_value(False).run()
    changes = [{"chunk_tokens": 64}, {"kv_blocks": 160}, {"prefix_cache": False}]
    assert fake.asked == [("configure", change) for change in changes]
    fake.status = status(chunk_tokens=32, kv_blocks=320, prefix_cache=True, scheduler="chunked")
    at.run()
    assert box(at, "chunk_tokens").value == "budget 32"
    assert box(at, "kv_blocks").value == "KV 320"
    assert switch(at, "prefix_cache").value is True


def test_only_chunked_has_a_token_budget(fake: FakeSession) -> None:
    assert box(opened(), "chunk_tokens").disabled
    fake.status = status(scheduler="chunked")
    assert not box(opened(), "chunk_tokens").disabled


@pytest.mark.parametrize(
    ("key", "typed", "change", "shown"),
    [
        ("kv_blocks", "25%", {"kv_blocks": 160}, "KV 160"),
        ("kv_blocks", "100 blocks", {"kv_blocks": 100}, "KV 100"),
        ("chunk_tokens", "48", {"chunk_tokens": 48}, "budget 48"),
    ],
)
def test_what_is_typed_is_shown_as_the_engine_has_it(
    fake: FakeSession, key: str, typed: str, change: dict[str, int], shown: str
) -> None:
    fake.status = status(scheduler="chunked")
    at = opened()
    type_in(at, key, typed)
    assert fake.asked == [("configure", change)]
    at.run()
    assert box(at, key).value == shown


def test_typed_nonsense_is_told_and_forgotten(fake: FakeSession) -> None:
    at = opened()
    type_in(at, "kv_blocks", "9,999")
    assert fake.asked == []
    assert [t.value for t in at.toast] == [
        '"9,999" is no number of KV blocks: write 1 to 640, or a share such as 25%'
    ]
    at.run()
    assert box(at, "kv_blocks").value == "KV 640"


def test_what_the_engine_refuses_is_told_to_who_asked(fake: FakeSession) -> None:
    fake.deaf = True
    asked, other = opened(), opened()
    box(asked, "kv_blocks").select("KV 12").run()
    fake.rejections.append(Rejected("Configure", "KV blocks is 12, but request 4 needs 30"))
    asked.run()
    assert [t.value for t in asked.toast] == ["KV blocks is 12, but request 4 needs 30"]
    assert box(asked, "kv_blocks").value == "KV 640"
    other.run()
    assert not other.toast
    asked.run()
    assert not asked.toast


def test_a_page_opened_before_the_engine_is_ready_sends_nothing(fake: FakeSession) -> None:
    known, told = fake.ready, fake.status
    fake.ready = fake.status = None
    fake.phase = "starting"
    at = opened()
    assert all(box.disabled for box in at.selectbox if box.key not in ("run", "scene~0"))
    fake.ready, fake.status, fake.phase = known, told, "ready"
    at.run()
    at.run()
    assert fake.asked == []
    assert box(at, "max_batch").value == "batch 10"


def test_a_page_drawn_before_its_run_is_committed_is_drawn_again(
    fake: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The badge had no row to read; what the page compares every second tells that it has one."""
    committed = frame.run_facts
    monkeypatch.setattr(frame, "run_facts", lambda run: None)
    at = opened()
    early = at.session_state["phase"]
    at.run()
    assert at.session_state["phase"] == early
    monkeypatch.setattr(frame, "run_facts", committed)
    at.run()
    assert at.session_state["phase"] != early


def test_a_click_is_kept_until_the_engine_answers(fake: FakeSession) -> None:
    """A rerun before the engine confirmed must not throw the widget back."""
    fake.deaf = True
    at = opened()
    box(at, "max_batch").select("batch 32").run()
    at.run()
    assert box(at, "max_batch").value == "batch 32"


def test_a_refused_change_returns_to_the_truth(
    fake: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.follow.PATIENCE_S", 0.0)
    fake.deaf = True
    at = opened()
    box(at, "max_batch").select("batch 32").run()
    at.run()
    assert box(at, "max_batch").value == "batch 10"


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
    assert box(at, "workload").disabled
    assert at.chat_input(key="asked").disabled


def test_pages_stay_thin() -> None:
    folder = app.dashboard.PAGES
    for page in PAGES:
        assert len((folder / f"{page}.py").read_text().splitlines()) <= 60


def test_the_first_page_answers_to_its_name_and_keeps_what_the_address_says() -> None:
    client = TestClient(Starlette(routes=[Route("/live", live_page)]))
    for query in ("", "?run=r-1&first=3&last=9"):
        answer = client.get(f"/live{query}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, f"/{query}")
