"""One view, made again whenever it may look different, for all who watch it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app import state
from app.live.renderer import Renderer
from app.live.views import Rendered, Request, version
from telemetry.clock import NS_PER_S, now_ns, seconds
from telemetry.errors import StoreError

log = logging.getLogger("stepscope")
POLL_S = 0.005
# On average a view is made so often at most, and takes this share of one core: where making it is
# slow, updates come less often.
LEAST_S, SHARE, MOST_S = 0.12, 0.4, 1.0
# Records are committed every 200 ms or so (`telemetry.departures`). A view is made right after a
# commit, so that what is drawn is new; where none has come for long, then from what there is.
FRESH_S, LATE_S = 0.015, 0.27


class Turns:
    """When a view may be made again: at an average interval, with one in advance.

    The generic cell rate algorithm (ITU-T I.371, 1993), whose clock is the caller's, ns.
    """

    def __init__(self) -> None:
        self._due_ns = self._taken_ns = 0
        self._interval_ns = 0

    def take(self, at_ns: int, interval_s: float) -> None:
        """One was made from at_ns on; the next are to come at that interval."""
        self._interval_ns = round(interval_s * NS_PER_S)
        self._taken_ns, self._due_ns = at_ns, max(self._due_ns, at_ns) + self._interval_ns

    def next_ns(self) -> int:
        """From when on the next may be made."""
        return self._due_ns - self._interval_ns

    def late_ns(self) -> int:
        """From when on it should be, whatever it shows."""
        return self._taken_ns + max(self._interval_ns, round(LATE_S * NS_PER_S))


class Feed:
    """Makes its view again and again; costs the same for one viewer and for a hundred."""

    def __init__(self, renderer: Renderer, request: Request) -> None:
        self.made, self.number, self.ended = Rendered(), 0, False
        self._renderer, self._request = renderer, request
        self._news, self._turns = asyncio.Event(), Turns()
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
                began_ns = now_ns()
                made = await self._renderer.make(self._request)
                self.made = made.rendered
                self.number += 1
                self._tell()
                self._turns.take(began_ns, min(max(LEAST_S, made.took_s / SHARE), MOST_S))
                await self._rest(made.version)
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

    async def _rest(self, seen: tuple[object, ...]) -> None:
        """Until the view looks different, by a commit that is new, and it is its turn again."""
        newest, changed_ns = version(self._request), now_ns()
        while not state.stopping():
            await asyncio.sleep(POLL_S)
            now, at_ns = version(self._request), now_ns()
            if now != newest:
                newest, changed_ns = now, at_ns
            fresh = seconds(at_ns - changed_ns) < FRESH_S and at_ns >= self._turns.next_ns()
            if newest != seen and (fresh or at_ns >= self._turns.late_ns()):
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
