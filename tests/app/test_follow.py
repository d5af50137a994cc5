"""Controls that follow the engine: an echo from a slow browser changes nothing, a hand always does.

A browser that has not drawn yet what the server put there goes on sending what it has: here its
messages are made up, since the testing tool's browser is never late.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.testing.v1 import AppTest

from app import state
from engine.messages import Load, Rejected
from telemetry.store import Store
from tests.app.boxes import box, followed, switch, value
from tests.app.fake import FakeSession, status
from tests.app.synthetic import race
from tests.app.test_pages import opened


@pytest.fixture
def fake(store: Store) -> Iterator[FakeSession]:
    race().write(store)
    made = FakeSession(store)
    state.hold(made)
    yield made
    state.hold(None)


def late(at: AppTest, *said: WidgetState) -> AppTest:
    """A rerun of a browser that still says this of widgets that may be gone."""
    states = at._tree.get_widget_states()
    mine = {s.id for s in said}
    kept = [s for s in states.widgets if s.id not in mine]
    return at._run(WidgetStates(widgets=[*kept, *said]))


def says(widget: Any, other: Any = None) -> WidgetState:
    """What a browser says of a widget that it has, or that somebody has just set otherwise."""
    if other is not None:
        widget.set_value(other)
    found: WidgetState = widget._widget_state
    return found


def batches(fake: FakeSession) -> list[int]:
    return [what[1]["max_batch"] for what in fake.asked if "max_batch" in what[1]]


# --- echoes ---


def test_an_echo_of_the_old_value_does_not_undo_another_tabs_change(fake: FakeSession) -> None:
    at = opened()
    echo = says(box(at, "max_batch"))
    fake.status = status(max_batch=24)
    for _ in range(3):
        late(at, echo)
        assert box(at, "max_batch").value == "batch 24"
    assert fake.asked == []


def test_an_echo_may_be_as_late_as_it_likes(fake: FakeSession) -> None:
    """Of any older generation, also of one that showed the very value that is real again."""
    at = opened()
    echoes = []
    for size in (24, 32, 24, 10, 24):
        echoes.append(says(box(at, "max_batch")))
        fake.status = status(max_batch=size)
        late(at, *echoes)
        assert box(at, "max_batch").value == f"batch {size}"
    assert fake.asked == []


def test_the_value_that_a_widget_just_left_can_be_chosen_at_once(fake: FakeSession) -> None:
    at = opened()
    fake.status = status(max_batch=24)
    at.run()
    box(at, "max_batch").select("batch 10").run()
    assert batches(fake) == [10]
    assert box(at, "max_batch").value == "batch 10"


def test_a_choice_in_a_widget_that_was_just_replaced_counts(fake: FakeSession) -> None:
    """The click was made on what the browser had drawn; it is the newest wish of all."""
    at = opened()
    clicked = says(box(at, "max_batch"), "batch 32")
    fake.status = status(max_batch=24)
    at.run()
    late(at, clicked)
    assert batches(fake) == [32]
    assert box(at, "max_batch").value == "batch 32"
    late(at, clicked)
    late(at, clicked)
    assert batches(fake) == [32]


def test_echoes_of_switches_are_nobodys_choice(fake: FakeSession) -> None:
    at = opened()
    echo = says(switch(at, "prefix_cache"))
    fake.status = status(prefix_cache=True, scheduler="static")
    late(at, echo)
    assert switch(at, "prefix_cache").value is True
    assert value(at, "scheduler") == "static"
    late(at, echo)
    assert fake.asked == []
    switch(at, "prefix_cache").set_value(False).run()
    assert fake.asked == [("configure", {"prefix_cache": False})]


def test_a_widget_is_kept_while_it_says_what_is_real(fake: FakeSession) -> None:
    """Its own choice and many runs leave it in place: a new widget would close an open list."""
    at = opened()
    first = box(at, "max_batch").id
    at.run()
    box(at, "max_batch").select("batch 32").run()
    at.run()
    assert box(at, "max_batch").id == first


def test_what_a_disabled_widget_was_set_to_is_not_shown(fake: FakeSession) -> None:
    """Its browser drew it before it was off; the server heard the value and told nobody."""
    fake.status = status(scheduler="continuous", chunk_tokens=256)
    at = opened()
    assert box(at, "chunk_tokens").disabled
    late(at, WidgetState(id=box(at, "chunk_tokens").id, string_value="budget 64"))
    assert box(at, "chunk_tokens").value == "budget 256"
    assert fake.asked == []


# --- on the way to the engine ---


def test_a_refusal_brings_the_truth_back(fake: FakeSession) -> None:
    fake.deaf = True
    at = opened()
    box(at, "max_batch").select("batch 32").run()
    assert box(at, "max_batch").value == "batch 32"
    fake.rejections.append(Rejected("Configure", "max batch is 32: use less"))
    at.run()
    assert box(at, "max_batch").value == "batch 10"
    assert not followed(at, "max_batch").waits
    box(at, "max_batch").select("batch 32").run()
    assert batches(fake) == [32, 32], "asked again, it is asked again"


def test_workload_and_arrivals_take_the_others_part_from_the_engine(fake: FakeSession) -> None:
    """Both make one setting: a box that shows an older half must not send it along."""
    at = opened()
    clicked = says(box(at, "arrivals"), "8 streams")
    fake.status = status(load=Load("skew", 4))
    late(at, clicked)
    assert fake.asked == [("load", "skew", 8, None)]
    clicked = says(box(at, "workload"), "steady")
    fake.status = status(load=Load("skew", None, 2.0))
    late(at, clicked)
    assert fake.asked[1:] == [("load", "steady", None, 2.0)]


def test_a_workload_chosen_while_nothing_runs_waits_for_its_arrivals(fake: FakeSession) -> None:
    fake.status = status(load=None)
    at = opened()
    box(at, "workload").select("steady").run()
    at.run()
    assert fake.asked == []
    assert box(at, "workload").value == "steady"
    box(at, "arrivals").select("8 streams").run()
    assert fake.asked == [("load", "steady", 8, None)]


# --- two tabs ---


class Tab:
    """A tab whose browser draws late, but keeps the order of what it sends."""

    def __init__(self) -> None:
        self.at = opened()
        self.has = says(box(self.at, "max_batch"))

    def rerun(self, draws: bool) -> None:
        """Timed: with what the browser has, then it draws what comes back, or not yet."""
        late(self.at, self.has)
        if draws:
            self.has = says(box(self.at, "max_batch"))

    def choose(self, size: int) -> bool:
        """Whether that is another value than the one on the screen."""
        text = f"batch {size}"
        other = self.has.string_value != text
        self.has = WidgetState(id=self.has.id, string_value=text)
        late(self.at, self.has)
        return other


@pytest.mark.parametrize("seed", range(3))
def test_two_late_tabs_agree_with_the_engine_in_the_end(fake: FakeSession, seed: int) -> None:
    rng, tabs = random.Random(seed), (Tab(), Tab())
    sizes = (10, 16, 24, 32)
    for _ in range(12):
        tab = rng.choice(tabs)
        if rng.random() < 0.5:
            tab.rerun(draws=rng.random() < 0.5)
            continue
        size, asked = rng.choice(sizes), len(fake.asked)
        wanted = [size] if tab.choose(size) else []
        assert batches(fake)[asked:] == wanted, "each choice is sent once, and nothing else is"
    for tab in (*tabs, *tabs):
        tab.rerun(draws=True)
    assert fake.status is not None
    for tab in tabs:
        assert box(tab.at, "max_batch").value == f"batch {fake.status.max_batch}"
