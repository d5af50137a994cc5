"""Controls of the Interference page without a browser: what they ask of the engine, and the pin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from streamlit.testing.v1 import AppTest

from app import state
from app.replay.curve import curves, key_of
from engine.messages import Load
from telemetry.store import Store
from tests.app.boxes import box
from tests.app.fake import FakeSession, ready, status
from tests.app.interfered import interfered, written
from tests.app.test_pages import SCRIPT


@pytest.fixture
def fake() -> Iterator[FakeSession]:
    store = Store(None)
    written(interfered(), store)
    made = FakeSession(store)
    state.hold(made)
    yield made
    state.hold(None)
    store.close()


def opened(**address: str) -> AppTest:
    at = AppTest.from_file(str(SCRIPT), default_timeout=60)
    for name, value in address.items():
        at.query_params[name] = value
    at.switch_page("../pages/interference.py")
    return at.run()


def button(at: AppTest, key: str) -> object:
    return next((b for b in at.button if b.key == key), None)


def pinned_in(at: AppTest) -> str:
    """Side A in the address; the testing tool keeps what it was given as it is, or in a list."""
    return in_address(at, "a")


def in_address(at: AppTest, name: str) -> str:
    value = at.query_params[name]
    return value if isinstance(value, str) else value[0]


def test_inject_sends_a_prompt_of_the_chosen_length_and_shows_it(fake: FakeSession) -> None:
    at = opened()
    assert not at.exception
    at.selectbox(key="length").select(512).run()
    at.button(key="inject").click().run()
    assert fake.asked == [("inject", 512)]
    assert at.session_state["show"] == "last inject"


def test_a_click_right_after_a_choice_takes_the_new_length(fake: FakeSession) -> None:
    """The button may not have been drawn again since."""
    at = opened()
    at.selectbox(key="length").select(4096)
    at.button(key="inject").click().run()
    assert fake.asked == [("inject", 4096)]


def test_throughput_over_time_stays_where_it_is(fake: FakeSession) -> None:
    """It shows the injection too, as a mark and as the worst gap of its second."""
    at = opened(show="over time")
    at.button(key="inject").click().run()
    assert fake.asked == [("inject", 1024)]
    assert at.session_state["show"] == "over time"


def test_chunk_and_inject_again_sets_scheduler_and_budget_first(fake: FakeSession) -> None:
    at = opened()
    assert at.button(key="chunk").label == "Chunk at 64 and inject again"
    at.selectbox(key="budget").select(32).run()
    assert at.button(key="chunk").label == "Chunk at 32 and inject again"
    at.button(key="chunk").click().run()
    assert fake.asked == [
        ("configure", {"scheduler": "chunked", "chunk_tokens": 32}),
        ("inject", 1024),
    ]


def test_pin_puts_the_steps_that_are_shown_into_the_address(fake: FakeSession) -> None:
    at = opened()
    assert "a" not in at.query_params
    at.button(key="pin").click().run()
    newest = fake.store.reader().value("SELECT max(step) FROM steps")
    pinned = pinned_in(at)
    assert pinned.startswith("r-synthetic:")
    assert pinned.endswith(f"-{newest}")
    assert button(at, "pin") is None
    at.button(key="unpin").click().run()
    assert "a" not in at.query_params
    assert button(at, "unpin") is None


def test_a_link_with_a_pin_opens_pinned(fake: FakeSession) -> None:
    at = opened(a="r-synthetic:60-180")
    assert button(at, "unpin") is not None
    assert pinned_in(at) == "r-synthetic:60-180"


def test_only_lengths_that_context_and_cache_can_hold_are_offered(fake: FakeSession) -> None:
    assert "prompt 4,096 tokens" in opened().selectbox(key="length").options
    fake.status = status(kv_blocks=40)  # of 16 tokens
    options = opened().selectbox(key="length").options
    assert options == ["prompt 128 tokens", "prompt 256 tokens", "prompt 512 tokens"]


def test_a_link_restores_length_budget_and_span(fake: FakeSession) -> None:
    at = opened(length="2048", budget="32", gap_span="12")
    assert [at.selectbox(key=k).value for k in ("length", "budget", "gap_span")] == [2048, 32, 12]
    assert at.button(key="chunk").label == "Chunk at 32 and inject again"
    at.button(key="inject").click().run()
    assert fake.asked == [("inject", 2048)]
    at.selectbox(key="length").select(512).run()
    assert in_address(at, "length") == "512"
    at.selectbox(key="length").select(1024).run()
    assert "length" not in at.query_params, "as usual"


@pytest.mark.parametrize("value", ["", "777", "-1", "many", "prompt 2,048 tokens"])
def test_a_link_with_a_length_that_is_none_opens_as_usual(fake: FakeSession, value: str) -> None:
    at = opened(length=value)
    assert not at.exception
    assert at.selectbox(key="length").value == 1024


def test_the_choices_outlive_a_page_switch(fake: FakeSession) -> None:
    at = opened()
    at.selectbox(key="length").select(256).run()
    at.switch_page("../pages/live.py").run()
    at.query_params.pop("length", None)
    at.switch_page("../pages/interference.py").run()
    assert at.selectbox(key="length").value == 256


def test_the_curve_is_asked_for_by_its_tab_and_again_by_a_button(fake: FakeSession) -> None:
    """The synthetic run does not hold its model's shape: the reason is what all tabs are told."""
    key = key_of("r-synthetic", {})
    at = opened(show="token budget")
    assert not at.exception
    told = curves().of(key)
    assert told is not None
    assert told.error is not None
    assert "does not hold the shape of its model" in told.error
    assert button(at, "pin") is None
    first = curves()._found[key]
    at.run()
    assert curves()._found[key] is first
    at.button(key="replay").click().run()
    assert curves()._found[key] is not first


def test_a_recorded_run_has_nobody_to_inject_to_but_can_be_pinned(fake: FakeSession) -> None:
    fake.run_id = "another"
    at = opened()
    at.selectbox(key="run").select("r-synthetic").run()
    assert at.button(key="inject").disabled
    assert at.button(key="chunk").disabled
    at.button(key="pin").click().run()
    assert pinned_in(at).startswith("r-synthetic:")


def test_it_runs_in_every_phase(fake: FakeSession) -> None:
    fake.ready = fake.status = None
    assert not opened().exception
    state.hold(None)
    assert not opened().exception
    state.hold(None, "no such model file")
    at = opened()
    assert not at.exception
    assert at.button(key="inject").disabled


def test_what_the_session_refuses_is_one_line(
    fake: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(prompt_tokens: int, max_tokens: int = 8) -> None:
        raise ValueError("the engine has ended")

    monkeypatch.setattr(fake, "inject", refuse)
    at = opened()
    at.button(key="inject").click().run()
    assert [t.value for t in at.toast] == ["the engine has ended"]
    assert at.session_state["show"] == "live"


def test_the_load_is_set_up_here_too(fake: FakeSession) -> None:
    assert ready().workloads == ("skew", "steady")
    at = opened()
    box(at, "arrivals").select("8 streams").run()
    assert fake.status is not None
    assert fake.status.load == Load("steady", 8, None)
