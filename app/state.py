"""The one session of this server, kept where a reload of our modules cannot reach it.

Streamlit drops and imports changed modules again; a module object of our own making, under a name
that no file has, survives that, and with it the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

if TYPE_CHECKING:
    from app.ramp import Ramp
    from engine.config import EngineConfig
    from engine.messages import Load, LoadDone, Pace, Progress, Ready, Rejected, Start, Status
    from telemetry.store import Store

_NAME = "_stepscope_registry"
Phase = Literal["starting", "ready", "failed"]


class Answer(Protocol):
    """What came back for a prompt so far."""

    @property
    def prompt(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def done(self) -> bool: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...


class Session(Protocol):
    """What pages and routes use of `app.wiring.Session`; its methods may be called anywhere."""

    @property
    def phase(self) -> Phase: ...
    @property
    def progress(self) -> Progress | None: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def ready(self) -> Ready | None: ...
    @property
    def status(self) -> Status | None: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def pace(self) -> Pace | None: ...
    @property
    def started_with(self) -> Start: ...
    @property
    def cpu_config(self) -> EngineConfig: ...
    @property
    def engine_pid(self) -> int | None: ...
    @property
    def store(self) -> Store: ...
    @property
    def token_text(self) -> Callable[[Sequence[int]], list[str]] | None: ...
    @property
    def rejections(self) -> Sequence[Rejected]: ...
    @property
    def load_done(self) -> LoadDone | None: ...
    @property
    def last_ticket(self) -> str | None: ...
    def submit_text(
        self,
        text: str,
        max_tokens: int = ...,
        temperature: float = ...,
        seed: int | None = ...,
    ) -> str: ...
    def answer(self, ticket: str) -> Answer | None: ...
    def inject(self, prompt_tokens: int, max_tokens: int = ...) -> None: ...
    def cancel(self, ticket: str) -> None: ...
    def configure(
        self,
        scheduler: str | None = ...,
        max_batch: int | None = ...,
        chunk_tokens: int | None = ...,
        prefix_cache: bool | None = ...,
        kv_blocks: int | None = ...,
    ) -> None: ...
    def load(
        self,
        workload: str,
        concurrency: int | None = ...,
        rate: float | None = ...,
        requests: int | None = ...,
        seed: int = ...,
    ) -> None: ...
    def ramp(self, ramp: Ramp) -> None: ...
    def stop_load(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def step_once(self) -> None: ...
    def mark(self, kind: str, detail: dict[str, Any]) -> None: ...
    def wait(self, timeout_s: float | None = ...) -> None: ...
    def new_run(self, config: EngineConfig, load: Load | None) -> None: ...
    def close(self) -> None: ...


def _registry() -> Any:
    """The surviving module: session, failure, stopping, and what is made once."""
    found = sys.modules.get(_NAME)
    if found is None:
        found = ModuleType(_NAME)
        vars(found).update(session=None, failure=None, stopping=False, made={})
        sys.modules[_NAME] = found
    return found


def session() -> Session | None:
    """The running session; None while it is being built, or when it could not be."""
    return cast("Session | None", _registry().session)


def failure() -> str | None:
    """Why there is no session, or why its engine stopped; None while all is well."""
    current = session()
    return _registry().failure or (current.failure if current else None)


def hold(current: Session | None, failed: str | None = None) -> None:
    """Keep the session, or the line that says why there is none."""
    registry = _registry()
    registry.session, registry.failure = current, failed


def stop() -> None:
    """Tell open streams to end: the server waits for them before it ends."""
    _registry().stopping = True


def stopping() -> bool:
    """Whether the server is on its way out."""
    return bool(_registry().stopping)


def kept(name: str) -> Any:
    """The object of that name; None before `once` has made it."""
    return _registry().made.get(name)


def once(name: str, make: Callable[[], Any]) -> Any:
    """The object of that name, made on the first call and kept for the server's life."""
    made = _registry().made
    if name not in made:
        made[name] = make()
    return made[name]
