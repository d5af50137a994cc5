"""One view, made again whenever it may look different, for all who watch it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app import state
from app.live.renderer import Renderer
from app.live.views import Rendered, Request, version
from telemetry.clock import now_ns, seconds
from telemetry.errors import StoreError

log = logging.getLogger("stepscope")
LEAST_S = 0.18
# A view may take a third of one core: where making it is slow, updates come less often.
REST = 2
MOST_S = 1.0
POLL_S = 0.02
# Records are committed every 100 ms. A view is made soon after a commit or right after the next,
# so that what is drawn is new; where none has come for longer, none is near.
FRESH_S, COMMIT_S = 0.05, 0.12


class Feed:
    """Makes its view again and again; costs the same for one viewer and for a hundred."""

    def __init__(self, renderer: Renderer, request: Request) -> None:
        self.made, self.number, self.ended = Rendered(), 0, False
        self._renderer, self._request = renderer, request
        self._news = asyncio.Event()
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
                made = await self._renderer.make(self._request)
                self.made = made.rendered
                self.number += 1
                self._tell()
                rest_s = min(max(LEAST_S - made.took_s, REST * made.took_s), MOST_S)
                await self._rest(made.version, rest_s)
        except StoreError:
            pass  # the store is closed: the server is ending
        except Exception:
            log.exception("a view could not be made: %s", self._request)
        finally:
            self.ended = True
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _rest(self, seen: tuple[object, ...], rest_s: float) -> None:
        """For so long at least, then until the view looks different, by a commit that is new."""
        newest = version(self._request)
        began_ns = changed_ns = now_ns()
        while not state.stopping():
            await asyncio.sleep(POLL_S)
            now, at_ns = version(self._request), now_ns()
            if now != newest:
                newest, changed_ns = now, at_ns
            age_s = seconds(at_ns - changed_ns)
            rested = seconds(at_ns - began_ns) >= rest_s
            if rested and newest != seen and (age_s < FRESH_S or age_s > COMMIT_S):
                return


class Feeds:
    """The views that somebody watches. Used from the event loop alone."""

    def __init__(self) -> None:
        self._renderer = Renderer()
        self._watched: dict[Request, Feed] = {}

    @contextmanager
    def watch(self, request: Request) -> Iterator[Feed]:
        """The feed that all viewers of equal requests share, until the last of them leaves."""
        feed = self._watched.get(request)
        if feed is None or feed.ended:
            feed = self._watched[request] = Feed(self._renderer, request)
        feed.viewers += 1
        try:
            yield feed
        finally:
            feed.viewers -= 1
            if not feed.viewers:
                feed.end()
                if self._watched.get(request) is feed:
                    del self._watched[request]
