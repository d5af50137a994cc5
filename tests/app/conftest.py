"""One simulated race for the whole folder: 40 skewed requests under static, then continuous."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
