"""What controls show of the engine changes its fingerprint; what they do not show leaves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from app import state
from app.engine_state import fingerprint
from app.race import races
from engine.messages import Load, Rejected
from telemetry.store import Store
from tests.app.fake import FakeSession, status


@pytest.fixture
def fake() -> Iterator[FakeSession]:
    store = Store(None)
    made = FakeSession(store)
    state.hold(made)
    yield made
    state.hold(None)
    store.close()


def refuse(fake: FakeSession) -> None:
    fake.rejections.append(Rejected("configure", "kv_blocks is 9: use 16 to 640"))


CHANGES: dict[str, Callable[[FakeSession], None]] = {
    "another engine": lambda fake: setattr(fake, "run_id", "another"),
    "it ended": lambda fake: setattr(fake, "phase", "failed"),
    "it says what it can do": lambda fake: setattr(fake, "ready", None),
    "paused": lambda fake: setattr(fake, "status", status(paused=True)),
    "scheduler": lambda fake: setattr(fake, "status", status(scheduler="static")),
    "load": lambda fake: setattr(fake, "status", status(load=Load("steady", 5))),
    "no load": lambda fake: setattr(fake, "status", status(load=None)),
    "prefix cache": lambda fake: setattr(fake, "status", status(prefix_cache=True)),
    "a refusal": refuse,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_it_changes_with_what_controls_show(
    fake: FakeSession, change: Callable[[FakeSession], None]
) -> None:
    before = fingerprint()
    assert fingerprint() == before
    change(fake)
    assert fingerprint() != before


def test_a_second_refusal_of_the_same_words_is_another(fake: FakeSession) -> None:
    refuse(fake)
    before = fingerprint()
    refuse(fake)
    assert fingerprint() != before


def test_it_changes_with_a_race(fake: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    monkeypatch.setattr(type(races()), "running", True)
    assert fingerprint() != before


def test_without_a_session_it_says_why(fake: FakeSession) -> None:
    state.hold(None)
    before = fingerprint()
    state.hold(None, "the database is in use")
    assert fingerprint() != before


def test_an_answer_does_not_change_it(fake: FakeSession) -> None:
    before = fingerprint()
    fake.submit_text("hello")
    assert fingerprint() == before
