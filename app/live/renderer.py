"""Makes views off the event loop, one after the other, with a reader of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from app import state
from app.live.views import Rendered, Request, render, version
from telemetry.clock import seconds, thread_cpu_ns
from telemetry.reader import Reader


@dataclass(frozen=True, slots=True)
class Made:
    """A view, the version it has or is newer than, and what it took of a core, s."""

    rendered: Rendered
    version: tuple[object, ...]
    took_s: float


class Renderer:
    """One worker: views take turns, so all of them together never take more than a core.

    One that somebody waits for in front of an empty page comes before all that are made again.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="stepscope-view")
        self._local = threading.local()
        self._changed = asyncio.Condition()
        self._busy, self._first = False, 0

    async def make(self, request: Request, *, lead_only: bool = False, first: bool = False) -> Made:
        """The view as it is when its turn comes. Raises StoreError once the store is closed."""
        await self._turn(first)
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, self._make, request, lead_only)
        finally:
            async with self._changed:
                self._busy = False
                self._changed.notify_all()

    async def _turn(self, first: bool) -> None:
        async with self._changed:
            self._first += first
            try:
                await self._changed.wait_for(lambda: not self._busy and (first or not self._first))
            finally:
                self._first -= first
            self._busy = True

    def _make(self, request: Request, lead_only: bool) -> Made:
        began_ns, now = thread_cpu_ns(), version(request)
        rendered = render(request, self._reader(), lead_only)
        return Made(rendered, now, seconds(thread_cpu_ns() - began_ns))

    def _reader(self) -> Reader | None:
        """A reader of the session's store for this thread; None without a session."""
        current = state.session()
        if current is None:
            return None
        store, reader = getattr(self._local, "reader", (None, None))
        if store is not current.store:
            reader = current.store.reader()
            self._local.reader = (current.store, reader)
        return reader
