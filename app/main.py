"""The server: Streamlit's pages, our streams, and the engine's owner, in one process.

Started with `streamlit run app/main.py`; settings come in STEPSCOPE_SERVE (see `app.wiring`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import plotly
import streamlit as st
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from app import state
from app.left_pages import drop_reruns_of_left_pages
from app.live.sockets import send_at_once
from app.live.still import still_route
from app.live.stream import view_route

_HERE = Path(__file__).resolve().parent
_PLOTLY = Path(plotly.__file__).parent / "package_data"
log = logging.getLogger("stepscope")


@contextlib.asynccontextmanager
async def lifespan(app: st.App) -> AsyncIterator[None]:
    """Build the session beside the start of the server, close it at the end."""
    state.once("loop", asyncio.get_running_loop)
    _tell_streams_to_stop()
    send_at_once()
    drop_reruns_of_left_pages()
    building = asyncio.create_task(asyncio.to_thread(_build))
    try:
        yield
    finally:
        state.stop()
        await building
        current = state.session()
        if current is not None:
            await asyncio.to_thread(current.close)


def _build() -> None:
    """Keep the session, or one line for the page that says why there is none."""
    from app.wiring import session_from_env  # imports the telemetry: after the port is open

    try:
        state.hold(session_from_env())
    except Exception as error:  # whatever it was, the page must say it
        log.exception("the session could not start")
        state.hold(None, str(error) or type(error).__name__)


def _tell_streams_to_stop() -> None:
    """Before the server waits for open connections, since event streams never end by themselves."""
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def stop(signum: int, frame: Any, before: Any = before) -> None:
            state.stop()
            if callable(before):
                before(signum, frame)

        with contextlib.suppress(ValueError):  # not the main thread: nobody sends signals there
            signal.signal(number, stop)


async def health(request: Request) -> JSONResponse:
    """What tests and scripts wait for: phase, run_id, engine_pid, steps committed.

    clock_ns: where the newest of them ended on the engine's clock; pace: of a modelled one;
    status: its settings.
    """
    current = state.session()
    if current is None:
        return JSONResponse({"phase": "failed" if state.failure() else "starting"})
    facts = {
        "phase": current.phase,
        "failure": state.failure(),
        "run_id": current.run_id,
        "engine_pid": current.engine_pid,
        "committed": current.store.committed,
        "pace": None if current.pace is None else asdict(current.pace),
        "status": None if current.status is None else asdict(current.status),
        **await asyncio.to_thread(_recorded, current),
    }
    return JSONResponse(facts)


def _recorded(current: state.Session) -> dict[str, int | None]:
    from telemetry.queries.live import committed_steps, newest

    if current.run_id is None:
        return {"steps": 0, "clock_ns": None}
    with current.store.reader() as reader:
        last = newest(reader, current.run_id)
        steps = committed_steps(reader, current.run_id)
    return {"steps": steps, "clock_ns": None if last is None else int(last["end_ns"])}


async def live_page(request: Request) -> RedirectResponse:
    """Streamlit serves its first page at the root alone; people write its name."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/{query}")


app = st.App(
    _HERE / "dashboard.py",
    lifespan=lifespan,
    routes=[
        Route("/live", live_page),
        Route("/stepscope/health", health),
        Route("/stepscope/view/{view}", view_route),
        Route("/stepscope/still/{view}", still_route),
        Mount("/stepscope/plotly", StaticFiles(directory=_PLOTLY)),
        Mount("/stepscope/static", StaticFiles(directory=_HERE / "static")),
    ],
)
