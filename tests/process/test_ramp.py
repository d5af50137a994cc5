"""A ramp on a real engine of a modelled device: it grows by itself, until anybody sets a load."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from app.ramp import Ramp
from app.wiring import Session
from engine.config import EngineConfig
from engine.messages import Load
from tests.process.waiting import until

pytestmark = pytest.mark.process
HELD_S = 0.2
H100 = {"model": "llama-3.1-8b", "backend": "modelled", "device": "h100-sxm"}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    config = EngineConfig(**H100, live=True, paced=True, max_batch=8)  # type: ignore[arg-type]
    made = Session(config, None)
    try:
        until(lambda: made.phase == "ready" and made.status is not None, "the engine")
        yield made
    finally:
        made.close()


def load(session: Session) -> Load | None:
    return session.status.load if session.status else None


def marks(session: Session) -> list[int | None]:
    """Streams of every load that was set, in order."""
    sql = "SELECT (detail->>'$.concurrency')::INT FROM events WHERE kind = 'load' ORDER BY t_ns"
    with session.store.reader() as reader:
        return [streams for (streams,) in reader.rows(sql)]


def test_it_is_the_engines_load_and_each_level_leaves_a_mark(session: Session) -> None:
    before = len(marks(session))
    session.ramp(Ramp("steady", (1, 2, 4), HELD_S))
    until(lambda: load(session) == Load("steady", 4), "the last level", 20)
    until(lambda: marks(session)[before:] == [1, 2, 4], "the marks of all levels", 20)


Command = Callable[[Session], None]
ENDS: dict[str, tuple[Command, int | None]] = {
    "a load": (lambda s: s.load("skew", concurrency=3), 3),
    "no load": (lambda s: s.stop_load(), None),
    "another ramp": (lambda s: s.ramp(Ramp("skew", (5,))), 5),
}


@pytest.mark.parametrize("how", ENDS)
def test_it_ends_where_anybody_commands_the_load(session: Session, how: str) -> None:
    command, streams = ENDS[how]
    before = len(marks(session))
    session.ramp(Ramp("steady", (2, 6), HELD_S))
    until(lambda: load(session) == Load("steady", 2), "the first level", 20)
    command(session)
    until(lambda: all(t.name != "ramp" for t in threading.enumerate()), "the end of it", 20)
    session.mark("ended", {"how": how})  # behind whatever it may have sent
    until(lambda: ended(session, how), "the mark", 20)
    assert marks(session)[before:] == [2, streams]
    assert load(session) == (None if streams is None else Load("skew", streams))


def ended(session: Session, how: str) -> bool:
    sql = "SELECT count(*) FROM events WHERE kind = 'ended' AND detail->>'$.how' = $how"
    with session.store.reader() as reader:
        return bool(reader.value(sql, {"how": how}))


def test_a_new_run_ends_it_too(session: Session) -> None:
    session.ramp(Ramp("steady", (1, 7), hold_s=60.0))
    config = EngineConfig(**H100, live=True, paced=True)  # type: ignore[arg-type]
    session.new_run(config, Load("skew", 2))
    until(lambda: all(t.name != "ramp" for t in threading.enumerate()), "the end of it", 20)
    until(lambda: load(session) == Load("skew", 2), "the load of the new run", 60)
