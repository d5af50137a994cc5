"""The only module that opens a database for writing: one thread, one transaction at a time."""

from __future__ import annotations

import os
import queue
import secrets
import threading
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC
from pathlib import Path

import duckdb

from telemetry.batches import table_of
from telemetry.database import CONFIG, check_readable, explained
from telemetry.ddl import create_statements
from telemetry.errors import StoreError, closed
from telemetry.inserts import Batch, Tables, transact
from telemetry.reader import Reader, Readers
from telemetry.schema import TABLES, RunRecord

__all__ = ["Store", "StoreError"]

# Envelopes in the queue before append() blocks, which in turn makes a live recorder drop and count.
QUEUED = 64
# Envelopes that one transaction may take: a commit costs 1.5 ms however small it is.
MERGED = 32
# Each checkpoint stalls the commit that triggers it, by about 4 ms a MiB of log; many short
# stalls show less than a rare long one.
CHECKPOINT = "4MB"

_END = "end"
_Item = Batch | threading.Event | str


class Store:
    """The database of a process. path None keeps it in memory.

    An existing file of ours gets further runs under new run_ids; every other file is refused
    with a StoreError and left as it is. Methods may be called from any thread.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.failure: StoreError | None = None
        self._root = _open(path)
        self._readers = Readers()
        self._queue: queue.Queue[_Item] = queue.Queue(QUEUED)
        self._gate = threading.Lock()
        self._closed = False
        self._committed = 0
        self._news = threading.Condition()
        self._writer = threading.Thread(target=self._write, name="store-writer", daemon=True)
        self._writer.start()

    def start_run(self, record: RunRecord) -> str:
        """Commit the run and return its run_id: UTC start to the millisecond, and a random tail."""
        started = record.started_wall.astimezone(UTC)
        stamp = f"{started:%Y%m%d-%H%M%S}-{started.microsecond // 1000:03d}"
        run_id = f"{stamp}-{secrets.token_hex(3)}"
        self.append(run_id, {"runs": table_of("runs", [_in_utc(record)])})
        self.flush()
        return run_id

    def append(self, run_id: str, tables: Tables) -> None:
        """Queue rows, which become visible together; blocks while QUEUED envelopes wait."""
        unknown = sorted(set(tables) - set(TABLES))
        if unknown:
            raise StoreError(f"no table {', '.join(unknown)}: there are {', '.join(TABLES)}")
        self._enqueue(Batch(run_id, tables))

    def _enqueue(self, item: _Item) -> None:
        with self._gate:
            if self._closed:
                raise closed()
            self._queue.put(item)

    def flush(self) -> None:
        """Wait until everything appended before is committed. Raises the first failed commit."""
        reached = threading.Event()
        self._enqueue(reached)
        reached.wait()
        if self.failure:
            raise self.failure

    def reader(self) -> Reader:
        """A reader of what is committed, which sees each later commit too."""
        with self._gate:
            if self._closed:
                raise closed()
            return Reader(self._root.cursor(), self._readers)

    @property
    def committed(self) -> int:
        """Number of transactions committed since the store was opened."""
        return self._committed

    def wait_commit(self, after: int, timeout_s: float) -> int:
        """Block until committed > after, the store closes or timeout_s passes; -> committed."""
        with self._news:
            self._news.wait_for(lambda: self._committed > after or self._closed, timeout_s)
            return self._committed

    def close(self) -> None:
        """Commit what is queued, end the readers, close the file. Raises a failed commit once."""
        with self._gate:
            if self._closed:
                return
            self._queue.put(_END)
            self._closed = True
        self._writer.join()
        with self._news:
            self._news.notify_all()
        self._readers.close()
        self._root.close()
        if self.failure:
            raise self.failure

    # --- the writer thread ---

    def _write(self) -> None:
        with self._root.cursor() as connection:
            ended = False
            while not ended:
                items = self._take()
                self._commit(connection, [i for i in items if isinstance(i, Batch)])
                for item in items:
                    if isinstance(item, threading.Event):
                        item.set()
                ended = _END in items

    def _take(self) -> list[_Item]:
        """Wait for one item, then take those that are there already."""
        items = [self._queue.get()]
        while len(items) < MERGED:
            try:
                items.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return items

    def _commit(self, connection: duckdb.DuckDBPyConnection, batches: Sequence[Batch]) -> None:
        if not batches:
            return
        try:
            transact(connection, batches)
        except Exception as error:  # whatever it is, it must surface and not end the thread
            self._failed(connection, batches, error)
        else:
            with self._news:
                self._committed += 1
                self._news.notify_all()

    def _failed(
        self, connection: duckdb.DuckDBPyConnection, batches: Sequence[Batch], error: Exception
    ) -> None:
        """One bad envelope must not take along those merged with it: try each alone."""
        if len(batches) > 1:
            for batch in batches:
                self._commit(connection, [batch])
        elif self.failure is None:
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            name = self.path or "the database in memory"
            self.failure = StoreError(f"{name}: records could not be written ({line})")


def _in_utc(record: RunRecord) -> RunRecord:
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    started = record.started_wall.astimezone(UTC).replace(tzinfo=None)
    return RunRecord(**{**values, "started_wall": started})


def _open(path: Path | None) -> duckdb.DuckDBPyConnection:
    if path is not None:
        _check_writable(path)
    try:
        connection = duckdb.connect(path or ":memory:", config=CONFIG)
        try:
            _prepare(connection)
        except Exception:
            connection.close()
            raise
    except duckdb.Error as error:
        raise explained(path or Path(":memory:"), error) from error
    return connection


def _check_writable(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder}: make it or use another path")
    if path.exists():
        check_readable(path, empty_is_ours=True)
    if not os.access(path if path.exists() else folder, os.W_OK) or not os.access(folder, os.W_OK):
        raise StoreError(f"{path} cannot be written: change its permissions or use another path")


def _prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """All or nothing, so that an interrupted start leaves an empty file and no half schema."""
    connection.execute(f"SET checkpoint_threshold = '{CHECKPOINT}'")
    connection.begin()
    for statement in create_statements():
        connection.execute(statement)
    connection.commit()
