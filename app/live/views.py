"""Which views the stream serves, and how one is made from the session's state and the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from app import contract_lab, state
from app.engine_state import fingerprint
from app.panels import (
    interference,
    kernels_step,
    kv_cache,
    live,
    modelled,
    race,
    requests,
    roofline,
    scheduling,
    session,
    standing,
    what_if,
)
from app.panels.view import RECORDED, Moment, Panels, Params, Pieces, Replays, Still, View
from app.race import races
from app.replay.curve import curves, key_of
from app.theme import theme
from telemetry.clock import NS_PER_S, now_ns
from telemetry.queries.live import run as run_row
from telemetry.reader import Reader

if TYPE_CHECKING:
    from engine.messages import Pace

VIEWS: dict[str, Panels] = {
    "live": live.panels,
    "roofline": roofline.panels,
    "interference": interference.panels,
    "scheduling": scheduling.panels,
    "race": race.panels,
    "kv-cache": kv_cache.panels,
    "requests": requests.panels,
    "kernels": kernels_step.panels,
}
STILL: dict[str, Still] = {"what-if": what_if.panels, "kernels": contract_lab.panels}
"""Views that no run and no engine stands behind: the address alone says what they show."""
LEADING = ("live",)
"""Views of which a part shows the newest step, and is made more often than the others. It shares no
number with them: on one page the same thing would else have two values."""
LIVE = "live"


@dataclass(frozen=True, slots=True)
class Request:
    """What one viewer watches; viewers of equal requests share each rendering."""

    view: str
    run: str = LIVE
    look: str = "light"
    params: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Rendered:
    """Each panel as JSON, so that a stream sends only those that changed."""

    figures: dict[str, str] = field(default_factory=dict)
    html: dict[str, str] = field(default_factory=dict)

    def over(self, before: Rendered) -> Rendered:
        """With what that one has and this one leaves out."""
        return Rendered({**before.figures, **self.figures}, {**before.html, **self.html})


def version(request: Request) -> tuple[object, ...]:
    """Changes when the view may look different: a commit, progress, an answer, and each second.

    The second is for what only time tells: that nothing has run for a while.
    """
    current, engine = state.session(), fingerprint()
    if current is None:
        return (engine,)
    if request.run != LIVE:
        return (request.run, engine, _stage(request, request.run))
    ticket = current.last_ticket
    given = current.answer(ticket) if ticket else None
    said = (len(given.text), given.done, given.error) if given else ()
    committed = current.store.committed
    phase = (engine, current.progress)
    moment = _moment(request)
    if not moment.paused and any(name == "first" for name, _ in request.params):
        committed = 0  # a held window looks the same after a commit: once a second is enough
    if request.view == "race" and not races().running:
        committed = 0  # what was raced does not change while something else runs
    stage = _stage(request, current.run_id)
    return (*phase, committed, said, stage, moment.paused, moment.now_ns // NS_PER_S)


def leads(request: Request) -> bool:
    """Whether the view can be made of what leads alone: where it follows a run that goes on."""
    current = state.session()
    goes_on = bool(current and current.status and not current.status.paused)
    held = any(name in ("first", "step") for name, _ in request.params)
    return goes_on and request.view in LEADING and request.run == LIVE and not held


def render(request: Request, reader: Reader | None, lead_only: bool = False) -> Rendered:
    """Make the view now; reader None while there is no store yet.

    lead_only: of what leads alone (`leads`), which is a third of the work.
    """
    view = _view(request, reader, lead_only)
    requests_now = view.html.pop("short", None)
    asked = _answer() if request.run == LIVE else None
    if asked or not lead_only:
        view.html.setdefault("answer", asked or requests_now or session.HINT)
    view.html["engine"] = fingerprint()
    return _rendered(view)


def render_still(request: Request) -> Rendered:
    """Make a view that needs no run; KeyError for one that does."""
    return _rendered(STILL[request.view](_params(request), theme(request.look)))


def _rendered(view: View) -> Rendered:
    dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
    return Rendered(
        {name: dump(figure) for name, figure in view.figures.items()},
        {name: dump(text) for name, text in view.html.items()},
    )


def _view(request: Request, reader: Reader | None, lead_only: bool) -> View:
    current, failed = state.session(), state.failure()
    run = request.run if request.run != LIVE else (current.run_id if current else None)
    if request.run == LIVE and failed:
        return session.failed(failed)
    if current is None or reader is None or run is None:
        progress = current.progress if current else None
        return session.starting(
            progress.stage if progress else None, progress.fraction if progress else None
        )
    panels = VIEWS[request.view]
    row = run_row(reader, run)
    params, pieces = _params(request), _pieces(current, row)
    replays = _replays(request, run)
    moment = replace(_moment(request), pieces=pieces, replays=replays, lead_only=lead_only)
    view = panels(reader, run, params, theme(request.look), moment)
    if view.html.get("counter"):
        control = standing.held(moment.is_live) if "first" in params else "following"
        view.html.setdefault("window", control)
    return _marked(view, request, row)


def _replays(request: Request, run: str | None) -> Replays | None:
    """How far the curve of token budgets is that the page asked for."""
    if request.view != "interference" or run is None:
        return None
    return curves().of(key_of(run, _params(request)))


def _stage(request: Request, run: str | None) -> tuple[object, ...] | None:
    replays = _replays(request, run)
    return replays.stage if replays else None


def _pieces(current: state.Session, row: Mapping[str, Any] | None) -> Pieces | None:
    """Text of tokens, where the run was made with the tokenizer that the engine has."""
    ready = current.ready
    if ready is None or row is None or _tokenizer(row) != _tokenizer(ready.run):
        return None
    return current.token_text


def _tokenizer(run: Mapping[str, Any]) -> Any:
    config = json.loads(run.get("config") or "{}")
    return config.get("tokenizer") or run.get("model")


def _marked(view: View, request: Request, row: dict[str, Any] | None) -> View:
    """A modelled run says so beside the step counter of every page, and how it keeps up."""
    if modelled.is_modelled(row) and view.html.get("counter"):
        pace = _pace() if request.run == LIVE else None
        behind = pace.behind if pace else None
        view.html["counter"] = modelled.counter(view.html["counter"], behind)
    return view


def _pace() -> Pace | None:
    current = state.session()
    return current.pace if current else None


def _moment(request: Request) -> Moment:
    """The only clock that views see; it stands still while the engine is paused."""
    current = state.session()
    if request.run != LIVE or current is None:
        return RECORDED
    paused = bool(current.status and current.status.paused)
    return Moment(True, paused, 0 if paused else _engine_now_ns())


def _engine_now_ns() -> int:
    """Now on the engine's clock: a modelled one may be behind."""
    pace = _pace()
    return now_ns() - (round(pace.lag_s * NS_PER_S) if pace else 0)


def _params(request: Request) -> Params:
    return dict(request.params)


def _answer() -> str | None:
    """To the newest prompt of a person; None before the first one."""
    current = state.session()
    ticket = current.last_ticket if current else None
    given = current.answer(ticket) if current and ticket else None
    if given is None:
        return None
    return session.answer(
        given.prompt,
        given.text,
        given.done,
        given.reason,
        given.error,
        synthetic=bool(current and current.ready and modelled.is_modelled(current.ready.run)),
    )
