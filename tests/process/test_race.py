"""Races on a real engine of a modelled device, whose times are the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.figures.data import records
from app.headless import run_headless
from app.race import Plan, RaceError, Races
from app.wiring import Session
from engine.config import EngineConfig
from engine.messages import Load
from telemetry.queries.race import legs, races
from tests.process.waiting import until

pytestmark = pytest.mark.process
H100 = {"model": "llama-3.1-8b", "backend": "modelled", "device": "h100-sxm"}
BEFORE = Load("steady", concurrency=3)


@pytest.fixture
def session() -> Iterator[Session]:
    config = EngineConfig(**H100, live=True, paced=True, max_batch=6, prefix_cache=True)  # type: ignore[arg-type]
    made = Session(config, None, BEFORE)
    try:
        until(lambda: made.phase == "ready" and made.status is not None, "the engine")
        yield made
    finally:
        made.close()


def recorded(session: Session) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The newest race and its legs."""
    assert session.run_id is not None
    with session.store.reader() as reader:
        newest = records(races(reader, session.run_id))[-1]
        return newest, records(legs(reader, session.run_id, newest["race"]))


def over(session: Session) -> bool:
    return recorded(session)[0]["ending"] is not None


def settings(session: Session) -> tuple[Any, ...]:
    status = session.status
    assert status is not None
    return status.scheduler, status.max_batch, status.prefix_cache, status.load


def test_a_race_is_two_runs_and_the_engine_goes_back_to_its_load(
    session: Session, tmp_path: Path
) -> None:
    before = settings(session)
    made = Races()
    made.start(session, Plan())
    with pytest.raises(RaceError, match="a race is running"):
        made.start(session, Plan())
    made.join(90)
    assert not made.running
    until(lambda: over(session), "the end of the race")
    race, rows = recorded(session)
    assert (race["ending"], race["workload"], race["requests"]) == ("done", "skew", 40)
    assert [row["mode"] for row in rows] == ["static", "continuous"]
    assert rows[0]["most_padded"] == 9
    assert rows[1]["most_padded"] == 0
    until(lambda: settings(session) == before, "what ran before")
    for row in rows:
        config = EngineConfig(**H100, scheduler=row["mode"], max_batch=10)  # type: ignore[arg-type]
        alone = run_headless(config, Load("skew", requests=40, seed=0), tmp_path / "alone.duckdb")
        assert row["steps"] == alone["steps"]
        assert row["tokens"] == alone["output_tokens"]
        assert row["padded_slot_fraction"] == alone["padded_slot_fraction"]
        assert row["makespan_s"] == pytest.approx(alone["makespan_s"], rel=1e-6)
        assert row["tokens_per_s"] == pytest.approx(alone["output_tokens_per_s"], rel=1e-6)


def test_on_the_real_backend_a_leg_counts_what_its_own_run_counts(
    tiny_model: Path, tmp_path: Path
) -> None:
    """Times differ from run to run; what ran in how many steps and slots does not."""
    cpu: dict[str, Any] = {"model": str(tiny_model), "dtype": "fp32", "threads": 1}
    session = Session(EngineConfig(**cpu, live=True, max_batch=6, prefix_cache=True), None, BEFORE)
    try:
        until(lambda: session.phase == "ready" and session.status is not None, "the engine")
        made = Races()
        made.start(session, Plan(requests=20))
        made.join(90)
        until(lambda: over(session), "the end of the race")
        _, rows = recorded(session)
    finally:
        session.close()
    assert [(row["mode"], row["most_padded"]) for row in rows] == [("static", 9), ("continuous", 0)]
    for row in rows:
        config = EngineConfig(**cpu, scheduler=row["mode"], max_batch=10)
        alone = run_headless(config, Load("skew", requests=20, seed=0), tmp_path / "alone.duckdb")
        assert (row["steps"], row["tokens"]) == (alone["steps"], alone["output_tokens"])
        assert row["requests"] == row["answered"] == alone["completed"] == 20
        assert row["padded_slot_fraction"] == alone["padded_slot_fraction"]
        assert row["tokens_per_s"] == pytest.approx(row["tokens"] / row["makespan_s"])


def slow(**more: Any) -> Plan:
    """Long enough for somebody to interfere."""
    return Plan(**{"workload": "steady", "requests": 60, "slots": 2, **more})


def running_leg(session: Session) -> bool:
    """The first leg has its requests."""
    with session.store.reader() as reader:
        assert session.run_id is not None
        found = races(reader, session.run_id)
        if not len(found):
            return False
        rows = legs(reader, session.run_id, found["race"].iloc[-1])
    return len(rows) > 0 and rows["requests"].iloc[0] > 0


def test_a_cancelled_race_leaves_the_engine_as_it_was(session: Session) -> None:
    before = settings(session)
    made = Races()
    made.start(session, slow())
    until(lambda: running_leg(session), "the first leg")
    made.cancel()
    made.join(30)
    until(lambda: over(session) and settings(session) == before, "what ran before")
    race, rows = recorded(session)
    assert (race["ending"], race["reason"]) == ("cancelled", "cancelled")
    assert len(rows) == 1


def test_what_somebody_sets_meanwhile_ends_the_race_and_stays(session: Session) -> None:
    before = settings(session)
    made = Races()
    made.start(session, slow())
    until(lambda: running_leg(session), "the first leg")
    session.configure(scheduler="chunked")
    made.join(30)
    until(lambda: over(session), "the end of the race")
    assert recorded(session)[0]["reason"] == "somebody changed scheduler"
    until(lambda: settings(session) == ("chunked", *before[1:]), "the choice to stay")


def test_a_load_that_somebody_starts_meanwhile_goes_on(session: Session) -> None:
    before = settings(session)
    made = Races()
    made.start(session, slow())
    until(lambda: running_leg(session), "the first leg")
    session.load("skew", concurrency=2)
    made.join(30)
    until(lambda: over(session), "the end of the race")
    assert recorded(session)[0]["reason"] == "somebody changed load"
    wanted = (*before[:3], Load("skew", concurrency=2))
    until(lambda: settings(session) == wanted, "the load to stay")


def test_what_cannot_race_changes_nothing(session: Session) -> None:
    before = settings(session)
    made = Races()
    refused = {
        "two or more": Plan(modes=("static",)),
        "use 2 to": Plan(requests=1),
        "use 1 to": Plan(slots=0),
    }
    for why, plan in refused.items():
        with pytest.raises(RaceError, match=why):
            made.start(session, plan)
    session.pause()
    until(lambda: session.status is not None and session.status.paused, "the pause")
    with pytest.raises(RaceError, match="resume it"):
        made.start(session, Plan())
    session.resume()
    until(lambda: session.status is not None and not session.status.paused, "the resumption")
    made.start(session, Plan(workload="no such workload"))
    made.join(30)
    until(lambda: over(session) and settings(session) == before, "what ran before")
    assert "no such workload" in recorded(session)[0]["reason"]
