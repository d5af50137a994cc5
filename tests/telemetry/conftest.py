from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.duckdb"


@pytest.fixture(scope="module")
def memory() -> Iterator[Store]:
    """One store for a module: tests keep apart by run."""
    store = Store(None)
    yield store
    store.close()
