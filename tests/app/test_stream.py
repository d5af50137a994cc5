"""The event stream: complete at first, then only what changed, made once for all viewers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from app import state
from app.live import stream
from app.live.views import VIEWS, Rendered, Request, version
from telemetry.store import Store
from tests.app.fake import FakeAnswer, FakeSession
from tests.app.synthetic import Simulation


@pytest.fixture
def simulation() -> Simulation:
    made = Simulation()
    made.arrive(8)
    for _ in range(20):
        made.advance()
    return made


@pytest.fixture
def fake(simulation: Simulation) -> Iterator[FakeSession]:
    store = Store(None)
    simulation.write(store)
    made = FakeSession(store)
    state.hold(made)
    yield made
    state.hold(None)
    store.close()


async def heard(request: Request, events: int, between: list[object]) -> list[dict[str, Any]]:
    """So many messages; before each but the first one of the actions runs."""
    out: list[dict[str, Any]] = []
    async for text in stream._events(stream.Renderer(), request):
        if text.startswith("data: "):
            out.append(json.loads(text.removeprefix("data: ")))
            if len(out) == events:
                break
            action = between[len(out) - 1]
            assert callable(action)
            action()
    return out


def test_first_all_then_what_changed(fake: FakeSession, simulation: Simulation) -> None:
    def more() -> None:
        simulation.advance()
        simulation.write(fake.store)

    first, second = asyncio.run(heard(Request("live"), 2, [more]))
    assert first["seq"] == 1
    assert set(first["figures"]) == {"anatomy", "strip"}
    assert {"headline", "tiles", "counter", "answer"} <= set(first["html"])
    assert second["seq"] == 2
    assert "window" not in second["html"]
    assert second["html"]["counter"] == "step 20"


def test_an_answer_alone_sends_the_answer_alone(fake: FakeSession) -> None:
    def speak() -> None:
        fake.last_ticket = "t"
        fake.answers["t"] = FakeAnswer("Why?", "Because <b>")

    _, second = asyncio.run(heard(Request("live"), 2, [speak]))
    assert second["figures"] == {}
    assert list(second["html"]) == ["answer"]
    assert "Because &lt;b&gt;" in second["html"]["answer"]


def test_what_goes_is_named(fake: FakeSession) -> None:
    def fail() -> None:
        fake.failure = "the engine ended"

    _, second = asyncio.run(heard(Request("live"), 2, [fail]))
    assert set(second["gone"]) == {"anatomy", "strip", "tiles", "stream", "counter", "window"}
    assert "the engine ended" in second["html"]["headline"]


def test_viewers_share_a_rendering(fake: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Request] = []
    real = stream.render

    def counted(request: Request, reader: object) -> Rendered:
        calls.append(request)
        return real(request, reader)  # type: ignore[arg-type]

    monkeypatch.setattr(stream, "render", counted)

    async def crowd() -> list[Rendered]:
        renderer, request = stream.Renderer(), Request("roofline")
        now = version(request)
        return await asyncio.gather(*(renderer.rendered(request, now) for _ in range(9)))

    made = asyncio.run(crowd())
    assert len(calls) == 1
    assert all(m is made[0] for m in made)


def test_nothing_new_is_not_sent() -> None:
    made = Rendered({"a": "1"}, {"b": "2"})
    sent = Rendered()
    assert stream.message(1, made, sent) is not None
    assert stream.message(2, Rendered({"a": "1"}, {"b": "2"}), sent) is None


def test_a_past_run_is_one_snapshot(fake: FakeSession, simulation: Simulation) -> None:
    request = Request("live", run="r-synthetic")
    before = version(request)
    simulation.advance()
    simulation.write(fake.store)
    assert version(request) == before


def test_before_the_session_the_stream_shows_progress() -> None:
    state.hold(None)
    (first,) = asyncio.run(heard(Request("live"), 1, []))
    assert "starting" in first["html"]["headline"]


def test_an_unknown_view_names_the_known_ones() -> None:
    client = TestClient(Starlette(routes=[Route("/view/{view}", stream.view_route)]))
    answer = client.get("/view/nonsense")
    assert answer.status_code == 404
    assert f"there are {', '.join(VIEWS)}\n" in answer.text


def test_an_update_is_small(fake: FakeSession) -> None:
    """Bytes of a full first message: every later one holds a part of it."""
    (first,) = asyncio.run(heard(Request("live"), 1, []))
    assert len(json.dumps(first)) < 60_000
