"""The event stream: complete at first, then only what changed, made once for all viewers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from app import state
from app.live import feed, renderer, stream, turns
from app.live.feed import Feed, Feeds
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
    async for text in stream._events(Feeds(), request):
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


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What was rendered, in order."""
    calls: list[Request] = []
    real = renderer.render

    def counted(request: Request, reader: Any, lead_only: bool) -> Rendered:
        calls.append(request)
        return real(request, reader, lead_only)

    monkeypatch.setattr(renderer, "render", counted)
    return calls


def test_viewers_share_a_rendering(fake: FakeSession, rendered: list[Request]) -> None:
    async def crowd() -> list[Rendered]:
        feeds, request = Feeds(), Request("roofline")
        with ExitStack() as viewers:
            watched = [viewers.enter_context(feeds.watch(request)) for _ in range(9)]
            assert all(await asyncio.gather(*(feed.after(0, 60) for feed in watched)))
            late = viewers.enter_context(feeds.watch(request))
            assert await late.after(0, 0)  # who comes later need not wait
            return [feed.made for feed in (*watched, late)]

    made = asyncio.run(crowd())
    assert rendered == [Request("roofline")]
    assert all(m is made[0] for m in made)


def test_a_feed_ends_with_its_last_viewer(fake: FakeSession) -> None:
    async def leave() -> None:
        feeds, request = Feeds(), Request("live")
        with feeds.watch(request) as feed:
            with feeds.watch(request) as same:
                assert same is feed
            assert not feed.ended
        assert feed.ended
        with feeds.watch(request) as other:
            assert other is not feed

    asyncio.run(leave())


def test_an_expected_view_is_there_when_its_viewer_comes(
    fake: FakeSession, rendered: list[Request]
) -> None:
    async def come() -> None:
        feeds, request = Feeds(), Request("roofline")
        feeds.expect(request)
        feeds.expect(request)  # a page mounts more than one part of it
        while not rendered:
            await asyncio.sleep(0.01)
        with feeds.watch(request) as feed:
            assert await feed.after(0, 60)
        assert feed.ended

    asyncio.run(come())
    assert rendered == [Request("roofline")]


def test_a_view_that_nobody_came_for_ends(
    fake: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "EXPECTED_S", 0.05)

    async def wait() -> bool:
        feeds, request = Feeds(), Request("roofline")
        feeds.expect(request)
        expected = feeds._watched[request]
        while not expected.ended:
            await asyncio.sleep(0.01)
        return request in feeds._watched

    assert not asyncio.run(wait())


def test_the_first_view_of_a_page_goes_before_all_that_are_made_again(
    fake: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    held = threading.Event()

    def render(request: Request, *_: object) -> Rendered:
        held.wait(30)
        made.append(request.view)
        return Rendered()

    monkeypatch.setattr(renderer, "render", render)

    async def ask() -> None:
        one = renderer.Renderer()
        begun = [asyncio.create_task(one.make(Request(v))) for v in ("live", "roofline", "race")]
        await asyncio.sleep(0)  # one is being made, two wait
        begun.append(asyncio.create_task(one.make(Request("requests"), first=True)))
        await asyncio.sleep(0.05)
        held.set()
        await asyncio.gather(*begun)

    asyncio.run(ask())
    assert made == ["live", "requests", "roofline", "race"]


def test_a_view_that_cannot_be_made_ends_its_feed_and_is_told(
    fake: FakeSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Rendered:
        raise ZeroDivisionError

    monkeypatch.setattr(renderer, "render", broken)
    assert asyncio.run(heard(Request("live"), 1, [])) == []
    assert "a view could not be made" in caplog.text


@pytest.mark.parametrize(
    ("made", "versions", "left"),
    [
        (1, "aaaab", ""),  # one that is new, at the first sight of it
        (1, "abc", "c"),  # even right after another, once
        (2, "aabbbcd", "d"),  # then at the interval, and not of a commit that is no longer new
        (2, "aab" + "b" * 12 + "cd", "cd"),  # but not for ever, where no other comes
    ],
)
def test_a_view_is_made_from_a_new_commit(
    monkeypatch: pytest.MonkeyPatch, made: int, versions: str, left: str
) -> None:
    """A version every 20 ms, of which `a` is what the view shows; it was made so often at 0, and
    the interval is 50 ms."""
    looks, clock = iter(versions), count(0, 20_000_000)
    monkeypatch.setattr(turns, "LEAST_S", 0.05)
    monkeypatch.setattr(feed, "version", lambda _: (next(looks),))
    monkeypatch.setattr(feed, "now_ns", lambda: next(clock))

    async def rest() -> None:
        feeding = Feed(renderer.Renderer(), Request("live"))
        feeding.end()
        for _ in range(made):
            feeding._turns.take(0, 0.0)
        await feeding._rest(("a",))

    asyncio.run(rest())
    assert "".join(looks) == left


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
