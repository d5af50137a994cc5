"""Server-sent events: after each commit the panels that changed, rendered once for all viewers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from app import state
from app.live.feed import Feeds
from app.live.views import LIVE, VIEWS, Rendered, Request

HEARTBEAT_S = 5.0


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


async def _events(feeds: Feeds, request: Request) -> AsyncIterator[str]:
    seq, seen, sent = 0, 0, Rendered()
    yield "retry: 1000\n\n"
    with feeds.watch(request) as feed:
        while not feed.ended:
            if not await feed.after(seen, HEARTBEAT_S):
                yield ": alive\n\n"
                continue
            seen = feed.number
            text = message(seq + 1, feed.made, sent)
            if text:
                seq += 1
                yield text


def request_of(http: HttpRequest) -> Request:
    """What a browser asks for: view in the path, run, look and the view's own in the query."""
    return _request(str(http.path_params["view"]), http.query_params)


def _request(view: str, params: Mapping[str, str]) -> Request:
    query = {k: v[:200] for k, v in params.items()}
    run, look = query.pop("run", LIVE), query.pop("look", "light")
    return Request(view, run, look, tuple(sorted(query.items())))


def expect(view: str, params: Mapping[str, str], look: str) -> None:
    """From a page's script: a browser will ask for this view as soon as it has drawn the page.

    Called from any thread; without a server there is nobody who could ask.
    """
    loop: asyncio.AbstractEventLoop | None = state.kept("loop")
    if loop is not None:
        loop.call_soon_threadsafe(lambda: _feeds().expect(_request(view, {**params, "look": look})))


def _feeds() -> Feeds:
    made: Feeds = state.once("feeds", Feeds)
    return made


async def view_route(http: HttpRequest) -> Response:
    """GET /stepscope/view/{view}?run=…&look=light|dark&…: an endless stream of events."""
    name = str(http.path_params["view"])
    if name not in VIEWS:
        return PlainTextResponse(f"no view {name!r}: there are {', '.join(VIEWS)}\n", 404)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    events = _events(_feeds(), request_of(http))
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
