"""Reading: what the queries run on, over the live store or a recorded file (`open_reader`)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from telemetry.errors import StoreError, closed

__all__ = ["Connection", "Params", "Reader", "Readers", "StoreError", "floats"]

Params = Sequence[Any] | Mapping[str, Any]


class Connection(Protocol):
    """What is used of a DuckDB connection: figures and queries know no more of the database."""

    @property
    def description(self) -> list[Any] | None: ...
    def execute(self, query: str, parameters: object = None, /) -> Connection: ...
    def df(self) -> pd.DataFrame: ...
    def fetchnumpy(self) -> dict[str, Any]: ...
    def fetchall(self) -> list[Any]: ...
    def fetchone(self) -> tuple[Any, ...] | None: ...
    def cursor(self) -> Connection: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...


class Readers:
    """The open readers of one database, so that closing it leaves none behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._open: weakref.WeakSet[Reader] = weakref.WeakSet()

    def add(self, reader: Reader) -> None:
        """Raises StoreError once closed."""
        with self._lock:
            if self._closed:
                raise closed()
            self._open.add(reader)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            readers = list(self._open)
        for reader in readers:
            reader.close()


def floats(column: Any) -> npt.NDArray[np.float64]:
    """A column of `Reader.columns`, NaN where it is NULL."""
    return np.ma.filled(column.astype(np.float64), np.nan)


class Reader:
    """A connection that only reads, each query in a snapshot of what was committed by then;
    several see one where they run within `snapshot()`.

    Queries of one Reader run one after another, whichever thread asks; for queries at the same
    time give each thread its own with `fresh()`. Closing the store closes all of its readers.
    """

    def __init__(
        self,
        connection: Connection,
        family: Readers | None = None,
    ) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._closed = False
        self._family = family or Readers()
        self._family.add(self)

    def frame(self, sql: str, params: Params | None = None) -> pd.DataFrame:
        """All rows. params fill `?` (a sequence) or `$name` (a mapping)."""
        with self._result(sql, params) as result:
            return result.df()

    def columns(self, sql: str, params: Params | None = None) -> dict[str, Any]:
        """All rows as a numpy array per column, masked where a value is NULL."""
        with self._result(sql, params) as result:
            return result.fetchnumpy()

    def rows(self, sql: str, params: Params | None = None) -> list[tuple[Any, ...]]:
        """All rows as Python values; integers stay exact beside NULLs."""
        with self._result(sql, params) as result:
            return result.fetchall()

    def row(self, sql: str, params: Params | None = None) -> dict[str, Any] | None:
        """The first row by column name, None without rows; integers stay exact."""
        with self._result(sql, params) as result:
            values = result.fetchone()
            names = [column[0] for column in result.description or ()]
        return None if values is None else dict(zip(names, values, strict=True))

    def value(self, sql: str, params: Params | None = None) -> Any:
        """The first column of the first row, None without rows."""
        first = self.row(sql, params)
        return None if first is None else next(iter(first.values()))

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Queries within see the same rows, whatever is committed meanwhile; it does not nest."""
        self.rows("BEGIN TRANSACTION")
        try:
            yield self
        finally:
            if not self._closed:
                self.rows("ROLLBACK")

    @contextmanager
    def _result(self, sql: str, params: Params | None) -> Iterator[Connection]:
        """Runs a query; one that closing cuts short raises StoreError."""
        with self._lock:
            if self._closed:
                raise closed()
            try:
                yield self._connection.execute(sql, params)
            except Exception as error:
                if self._closed:
                    raise closed() from error
                raise

    def fresh(self) -> Reader:
        """Another reader of the same database, for another thread."""
        with self._lock:
            if self._closed:
                raise closed()
            return Reader(self._connection.cursor(), self._family)

    def close(self) -> None:
        """Ends a query in progress. May be called twice, from any thread."""
        self._closed = True  # no query begins from here on
        while not self._lock.acquire(timeout=0.05):
            self._connection.interrupt()  # again, since one that is about to begin misses it
        try:
            self._connection.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()
