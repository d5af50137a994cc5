"""One simulated race for the whole folder: 40 skewed requests under static, then continuous."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app import state
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.synthetic import Simulation, race


@pytest.fixture(scope="session")
def simulation() -> Simulation:
    return race()


@pytest.fixture(scope="session")
def reader(simulation: Simulation) -> Iterator[Reader]:
    store = Store(None)
    simulation.write(store)
    yield store.reader()
    store.close()


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store(None)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server makes once and keeps, its races too, is each test's own.

    A race holds the controls for seconds after its end: those of the next test, too.
    """
    monkeypatch.setattr(state._registry(), "made", {})
