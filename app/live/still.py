"""Views without a run: one request, one answer. Nothing is streamed, since nothing moves."""

from __future__ import annotations

import asyncio

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from app import state
from app.live.stream import joined, request_of
from app.live.views import STILL, Rendered, Request, render_still

_KEPT = 256


class Answers:
    """Each answer is made once: a slider that goes back and forth asks the same again."""

    def __init__(self) -> None:
        self._made: dict[Request, Rendered] = {}

    async def of(self, request: Request) -> Rendered:
        kept = self._made.get(request)
        if kept is not None:
            return kept
        made: Rendered = await asyncio.to_thread(render_still, request)
        if len(self._made) >= _KEPT:
            self._made.pop(next(iter(self._made)))
        self._made[request] = made
        return made


async def still_route(http: HttpRequest) -> Response:
    """GET /stepscope/still/{view}?look=light|dark&…: figures and HTML as one JSON object."""
    name = str(http.path_params["view"])
    if name not in STILL:
        return PlainTextResponse(f"no view {name!r}: there are {', '.join(STILL)}\n", 404)
    answers: Answers = state.once("answers", Answers)
    made = await answers.of(request_of(http))
    body = f'{{"figures":{{{joined(made.figures)}}},"html":{{{joined(made.html)}}}}}'
    return Response(body, media_type="application/json", headers={"cache-control": "no-store"})
