"""Reading: what the queries run on, over the live store or a recorded file."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pandas as pd

from telemetry.database import CONFIG, StoreError, check_readable, explained

Params = Sequence[Any] | Mapping[str, Any]
__all__ = ["Params", "Reader", "StoreError", "open_reader"]


class Reader:
    """A connection that only reads, each query in a snapshot of what was committed by then.

    Queries of one Reader run one after another, whichever thread asks; for queries at the same
    time give each thread its own with `fresh()`. Closing the store closes all of its readers.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        family: weakref.WeakSet[Reader] | None = None,
    ) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._closed = False
        self._family: weakref.WeakSet[Reader] = weakref.WeakSet() if family is None else family
        self._family.add(self)

    def frame(self, sql: str, params: Params | None = None) -> pd.DataFrame:
        """All rows. params fill `?` (a sequence) or `$name` (a mapping)."""
        with self._lock:
            return self._execute(sql, params).df()

    def rows(self, sql: str, params: Params | None = None) -> list[tuple[Any, ...]]:
        """All rows as Python values; integers stay exact beside NULLs."""
        with self._lock:
            return self._execute(sql, params).fetchall()

    def row(self, sql: str, params: Params | None = None) -> dict[str, Any] | None:
        """The first row by column name, None without rows; integers stay exact."""
        with self._lock:
            cursor = self._execute(sql, params)
            values = cursor.fetchone()
            names = [column[0] for column in cursor.description or ()]
        return None if values is None else dict(zip(names, values, strict=True))

    def value(self, sql: str, params: Params | None = None) -> Any:
        """The first column of the first row, None without rows."""
        first = self.row(sql, params)
        return None if first is None else next(iter(first.values()))

    def _execute(self, sql: str, params: Params | None) -> duckdb.DuckDBPyConnection:
        if self._closed:
            raise StoreError("the database is closed: open it again")
        return self._connection.execute(sql, params)

    def fresh(self) -> Reader:
        """Another reader of the same database, for another thread."""
        with self._lock:
            if self._closed:
                raise StoreError("the database is closed: open it again")
            return Reader(self._connection.cursor(), self._family)

    def close(self) -> None:
        """Ends a query in progress. May be called twice, from any thread."""
        self._connection.interrupt()
        with self._lock:
            self._closed = True
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def open_reader(path: Path) -> Reader:
    """Open a recorded file read-only.

    Raises StoreError: missing, not ours, made by a newer version, damaged, or in use (while a
    Stepscope writes a file no other process can open it, not even to read).
    """
    check_readable(path)
    try:
        return Reader(duckdb.connect(path, read_only=True, config=CONFIG))
    except duckdb.Error as error:
        raise explained(path, error) from error
