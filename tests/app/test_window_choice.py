"""The window that a tab keeps: from a link, from a chart, for its run, in the address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from app import state, window_choice
from app.window_choice import Choice
from telemetry.store import Store
from tests.app.fake import FakeSession
from tests.app.synthetic import RUN_ID, race
from tests.app.test_pages import opened

HELD = {"first": "100", "last": "140"}


@pytest.fixture
def fake() -> Iterator[FakeSession]:
    store = Store(None)
    race().write(store)
    made = FakeSession(store)
    state.hold(made)
    yield made
    state.hold(None)
    store.close()


@pytest.fixture
def tab(fake: FakeSession, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A tab's session state and address, without Streamlit; it shows the live run."""
    made = SimpleNamespace(session_state={"shown_run": "live"}, query_params={})
    monkeypatch.setattr(window_choice, "st", made)
    return made


def tell(tab: SimpleNamespace, value: Any) -> Choice | None:
    """A chart of the browser reports it; what is held then."""
    tab.session_state["charts"] = {"window": value}
    window_choice.reported("charts")
    held: Choice | None = tab.session_state["chosen_window"]
    return held


def starts(fake: FakeSession) -> dict[int, tuple[int, int]]:
    frame = fake.store.reader().frame("SELECT step, t_start_ns, t_step_s FROM steps ORDER BY step")
    return {
        int(r["step"]): (int(r["t_start_ns"]), int(r["t_start_ns"]) + round(r["t_step_s"] * 1e9))
        for r in frame.to_dict("records")
    }


def test_a_drag_over_time_holds_every_step_that_it_touches(
    tab: SimpleNamespace, fake: FakeSession
) -> None:
    at = starts(fake)
    zero_ns = at[300][1]
    from_s = (at[120][1] - 1000 - zero_ns) / 1e9  # the end of 120, and the begin of 160
    to_s = (at[160][0] + 1000 - zero_ns) / 1e9
    held = tell(tab, {"zero_ns": str(zero_ns), "from": from_s, "to": to_s})
    assert held == Choice(RUN_ID, 120, 160)
    again = tell(tab, {"zero_ns": str(zero_ns), "from": to_s, "to": from_s})
    assert again == held


def test_a_drag_over_steps_and_a_click(tab: SimpleNamespace) -> None:
    assert tell(tab, {"first": 140, "last": 100}) == Choice(RUN_ID, 100, 140)
    clicked = tell(tab, {"first": 100, "last": 140, "step": 120})
    assert clicked == Choice(RUN_ID, 100, 140, 120)
    assert tell(tab, {"first": 110, "last": 130}) == Choice(RUN_ID, 110, 130, 120)
    assert tell(tab, {"first": 125, "last": 130}) == Choice(RUN_ID, 125, 130)


def test_follow_lets_go(tab: SimpleNamespace) -> None:
    assert tell(tab, {"first": 100, "last": 140}) is not None
    assert tell(tab, "follow") is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "x",
        [],
        {},
        {"first": 1},
        {"first": "a", "last": 3},
        {"first": 1, "last": 2, "step": "no"},
        {"zero_ns": "5", "from": 1},
        {"zero_ns": "x", "from": 1, "to": 2},
        {"zero_ns": "0", "from": float("inf"), "to": 1},
        {"zero_ns": "0", "from": -2, "to": -1},  # before the first step: nothing ran
    ],
)
def test_nonsense_changes_nothing(tab: SimpleNamespace, value: Any) -> None:
    before = tell(tab, {"first": 100, "last": 140})
    assert tell(tab, value) == before


def test_before_there_is_a_run_nothing_is_chosen(tab: SimpleNamespace, fake: FakeSession) -> None:
    fake.run_id = None
    tab.session_state["chosen_window"] = None
    assert tell(tab, {"first": 1, "last": 2}) is None


def test_the_window_of_a_link_waits_for_the_engine_to_say_its_run(
    tab: SimpleNamespace, fake: FakeSession
) -> None:
    fake.run_id, tab.query_params = None, SimpleNamespace(to_dict=lambda: HELD)
    window_choice.remember()
    assert window_choice.params("live") == HELD
    fake.run_id = RUN_ID
    assert window_choice.params("live") == HELD
    fake.run_id = "the next one"
    assert window_choice.params("live") == {}
    assert tab.session_state["chosen_window"] is None


def views(at: Any) -> list[dict[str, str]]:
    """Parameters of all live components of the page."""
    found = [json.loads(e.proto.json or e.proto.mixed.json) for e in at.get("bidi_component")]
    params = [data["params"] for data in found if "params" in data]
    assert params
    return params


def said(at: Any, name: str) -> str:
    """A parameter of the address; the testing tool gives a list where it had set it itself."""
    value = at.query_params[name]
    return value if isinstance(value, str) else str(value[0])


@pytest.fixture
def linked(fake: FakeSession) -> Any:
    return opened_at(run=RUN_ID, **HELD, step="120")


def opened_at(**query: str) -> Any:
    at = opened()
    del at.session_state["chosen_window"]
    for name, value in query.items():
        at.query_params[name] = value
    return at.run()


def test_a_link_opens_its_window_in_all_views_of_all_pages(linked: Any) -> None:
    for page in ("live", "roofline", "scheduling", "kv_cache", "requests", "interference"):
        linked.switch_page(f"../pages/{page}.py").run()
        assert not linked.exception
        held = [{k: p.get(k) for k in ("first", "last", "step")} for p in views(linked)]
        assert held
        assert all(h == {**HELD, "step": "120"} for h in held)
        assert said(linked, "first") == "100"


def test_a_held_live_run_is_named_in_the_address_and_goes_with_it(linked: Any) -> None:
    """A link to steps of a run must open them when another run is live."""
    assert linked.selectbox(key="run").value == "live"
    assert said(linked, "run") == RUN_ID
    linked.session_state["chosen_window"] = None
    linked.run()
    assert not {"run", "first", "last", "step"} & set(linked.query_params)


def test_a_window_goes_when_another_run_is_shown(linked: Any, fake: FakeSession) -> None:
    race().write(fake.store, "another")
    linked.run()
    linked.selectbox(key="run").select("another").run()
    assert said(linked, "run") == "another"
    assert "first" not in linked.query_params
    assert all("first" not in p for p in views(linked))


def test_a_link_to_a_run_that_is_not_here_holds_nothing(fake: FakeSession) -> None:
    at = opened_at(run="gone", **HELD)
    assert all("first" not in p for p in views(at))
    assert "first" not in at.query_params


@pytest.mark.parametrize("query", [{"first": "1"}, {"first": "x", "last": "2"}])
def test_half_a_window_in_the_address_is_none(fake: FakeSession, query: dict[str, str]) -> None:
    at = opened_at(**query)
    assert all("first" not in p for p in views(at))


def test_step_by_step_follows_the_newest_again(linked: Any, fake: FakeSession) -> None:
    linked.button(key="pause").click().run()
    linked.run()
    linked.button(key="step").click().run()
    assert ("step_once") in [a[0] for a in fake.asked]
    assert linked.session_state["chosen_window"] is None
