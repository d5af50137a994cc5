"""Server-sent events: after each commit the panels that changed, rendered once for all viewers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from app import state
from app.live.views import LIVE, VIEWS, Rendered, Request, render, version
from telemetry.clock import now_ns
from telemetry.reader import Reader, StoreError

PERIOD_S = 0.2
# A view may take a quarter of one core: where rendering is slow, updates come less often.
REST = 3
POLL_S = 0.04
HEARTBEAT_S = 5.0
_KEPT = 64


class Renderer:
    """Renders off the event loop, each request once per version, with a reader of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="stepscope-view")
        self._made: dict[Request, tuple[tuple[object, ...], Rendered]] = {}
        self._local = threading.local()

    async def rendered(self, request: Request, wanted: tuple[object, ...]) -> Rendered:
        """The view at this version or a newer one."""
        kept = self._made.get(request)
        if kept and kept[0] == wanted:
            return kept[1]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._render, request, wanted)

    def _render(self, request: Request, wanted: tuple[object, ...]) -> Rendered:
        """Runs in the one worker, so viewers that asked meanwhile find it made."""
        kept = self._made.get(request)
        if kept and kept[0] == wanted:
            return kept[1]
        now = version(request)
        made = render(request, self._reader())
        if len(self._made) >= _KEPT:
            self._made.clear()
        self._made[request] = (now, made)
        return made

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


def message(seq: int, made: Rendered, sent: Rendered) -> str | None:
    """One event with the panels that differ from what was sent; None when none does."""
    figures = {k: v for k, v in made.figures.items() if sent.figures.get(k) != v}
    html = {k: v for k, v in made.html.items() if sent.html.get(k) != v}
    gone = (sent.figures.keys() - made.figures.keys()) | (sent.html.keys() - made.html.keys())
    if not (figures or html or gone):
        return None
    sent.figures, sent.html = dict(made.figures), dict(made.html)
    body = f'"seq":{seq},"gone":{json.dumps(sorted(gone))}'
    return f'data: {{{body},"figures":{{{joined(figures)}}},"html":{{{joined(html)}}}}}\n\n'


def joined(parts: dict[str, str]) -> str:
    """The inside of a JSON object whose values are JSON already."""
    return ",".join(f"{json.dumps(name)}:{text}" for name, text in parts.items())


async def _events(renderer: Renderer, request: Request) -> AsyncIterator[str]:
    seq, sent = 0, Rendered()
    seen: tuple[object, ...] | None = None
    spoke_ns = now_ns()
    yield "retry: 1000\n\n"
    while not state.stopping():
        now = version(request)
        if now == seen:
            if now_ns() - spoke_ns > HEARTBEAT_S * 1e9:
                spoke_ns = now_ns()
                yield ": alive\n\n"
            await asyncio.sleep(POLL_S)
            continue
        started_ns = now_ns()
        try:
            text = message(seq + 1, await renderer.rendered(request, now), sent)
        except StoreError:
            return
        seen = now
        if text:
            seq, spoke_ns = seq + 1, now_ns()
            yield text
        took_s = (now_ns() - started_ns) / 1e9
        await asyncio.sleep(min(max(PERIOD_S - took_s, REST * took_s), 1.0))


def request_of(http: HttpRequest) -> Request:
    """What a browser asks for: view in the path, run, look and the view's own in the query."""
    query = {k: v[:200] for k, v in http.query_params.items()}
    run, look = query.pop("run", LIVE), query.pop("look", "light")
    return Request(str(http.path_params["view"]), run, look, tuple(sorted(query.items())))


async def view_route(http: HttpRequest) -> Response:
    """GET /stepscope/view/{view}?run=…&look=light|dark&…: an endless stream of events."""
    name = str(http.path_params["view"])
    if name not in VIEWS:
        return PlainTextResponse(f"no view {name!r}: there are {', '.join(VIEWS)}\n", 404)
    renderer: Renderer = state.once("renderer", Renderer)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    events = _events(renderer, request_of(http))
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
