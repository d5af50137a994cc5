"""One view, made again whenever it may look different, for all who watch it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app import state
from app.engine_state import fingerprint
from app.live.page_runs import page_runs
from app.live.renderer import Renderer
from app.live.turns import Turns, Whole
from app.live.views import Rendered, Request, leads, version
from telemetry.clock import now_ns, seconds
from telemetry.errors import StoreError

log = logging.getLogger("stepscope")
POLL_S = 0.005
# Records are committed every 200 ms or so (`telemetry.departures`). A view is made right after a
# commit, so that what is drawn is new.
FRESH_S = 0.015
# How long a view is made for somebody who was expected and has not come.
EXPECTED_S = 2.0


class Feed:
    """Makes its view again and again; costs the same for one viewer and for a hundred."""

    def __init__(self, renderer: Renderer, request: Request) -> None:
        self.made, self.number, self.ended = Rendered(), 0, False
        self._renderer, self._request = renderer, request
        self._news, self._turns, self._whole = asyncio.Event(), Turns(), Whole()
        self.viewers = 0
        self._task = asyncio.create_task(self._run())

    async def after(self, number: int, timeout_s: float) -> bool:
        """Wait for a view newer than that one; False if none came in time, or none will come."""
        if self.number == number and not self.ended:
            try:
                await asyncio.wait_for(self._news.wait(), timeout_s)
            except TimeoutError:
                return False
        return self.number > number

    def end(self) -> None:
        """Nobody watches any more."""
        self.ended = True
        self._task.cancel()

    async def _run(self) -> None:
        try:
            while not state.stopping():
                await self._rest(await self._make())
        except StoreError:
            pass  # the store is closed: the server is ending
        except Exception:
            log.exception("a view could not be made: %s", self._request)
        finally:
            self.ended = True
            self._end_wait()

    async def _make(self) -> tuple[object, ...]:
        """What leads or, when its time has come, all of it; -> the version that it has."""
        began_ns, engine = now_ns(), fingerprint()
        lead_only = self._whole.enough(began_ns, engine) and leads(self._request)
        first = self.number == 0
        made = await self._renderer.make(self._request, lead_only=lead_only, first=first)
        self._whole.made(began_ns, engine, lead_only=lead_only)
        self._turns.take(began_ns, made.took_s)
        self._tell(made.rendered.over(self.made) if lead_only else made.rendered)
        return made.version

    def _tell(self, made: Rendered) -> None:
        self.made = made
        self.number += 1
        self._end_wait()

    def _end_wait(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _rest(self, seen: tuple[object, ...]) -> None:
        """Until the view looks different, by a commit that is new, and it is its turn again."""
        newest, changed_ns = version(self._request), now_ns()
        while not state.stopping():
            await asyncio.sleep(POLL_S)
            now, at_ns = version(self._request), now_ns()
            if now != newest:
                newest, changed_ns = now, at_ns
            if page_runs().busy(at_ns):
                continue
            fresh = seconds(at_ns - changed_ns) < FRESH_S and at_ns >= self._turns.next_ns()
            if newest != seen and (fresh or at_ns >= self._turns.late_ns()):
                return
            if self._whole.overdue(at_ns):
                return


class Feeds:
    """The views that somebody watches. Used from the event loop alone."""

    def __init__(self) -> None:
        self._renderer = Renderer()
        self._watched: dict[Request, Feed] = {}

    @contextmanager
    def watch(self, request: Request) -> Iterator[Feed]:
        """The feed that all viewers of equal requests share, until the last of them leaves."""
        feed = self._feed(request)
        feed.viewers += 1
        try:
            yield feed
        finally:
            feed.viewers -= 1
            self._end_unwatched(request, feed)

    def expect(self, request: Request) -> None:
        """Somebody will ask for it in a moment: it is made meanwhile."""
        feed = self._feed(request)
        if not feed.viewers:
            loop = asyncio.get_running_loop()
            loop.call_later(EXPECTED_S, self._end_unwatched, request, feed)

    def _feed(self, request: Request) -> Feed:
        feed = self._watched.get(request)
        if feed is None or feed.ended:
            feed = self._watched[request] = Feed(self._renderer, request)
        return feed

    def _end_unwatched(self, request: Request, feed: Feed) -> None:
        if feed.viewers:
            return
        feed.end()
        if self._watched.get(request) is feed:
            del self._watched[request]
