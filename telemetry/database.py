"""Which files are ours, opening one to read, and what to say when it cannot be used."""

from __future__ import annotations

import os
import re
from pathlib import Path

import duckdb

from telemetry.ddl import MARKER
from telemetry.errors import StoreError
from telemetry.reader import Reader
from telemetry.schema import SCHEMA_VERSION

__all__ = ["CONFIG", "StoreError", "check_readable", "explained", "open_reader"]

# The same for readers and the writer: within a process DuckDB refuses one file under two configs.
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "1GB",
    "threads": "2",
}


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


def check_readable(path: Path, *, empty_is_ours: bool = False) -> None:
    """Raise StoreError unless the file is one of ours; never changes it.

    A DuckDB file without tables, which an interrupted start leaves, passes with empty_is_ours.
    """
    _check_header(path)
    try:
        with duckdb.connect(path, read_only=True, config=CONFIG) as connection:
            _check_marker(path, connection, empty_is_ours)
    except duckdb.Error as error:
        raise explained(path, error) from error


def _check_header(path: Path) -> None:
    if not path.exists():
        raise StoreError(f"{path} does not exist: give a file that `stepscope run --db` wrote")
    if path.is_dir():
        raise StoreError(f"{path} is a folder: give the path of a file")
    if not os.access(path, os.R_OK):
        raise StoreError(f"{path} cannot be read: change its permissions or use another file")
    with path.open("rb") as file:
        if file.read(12)[8:] != b"DUCK":
            raise StoreError(f"{path} is not a DuckDB file, and was left as it is: use another")


def _check_marker(path: Path, connection: duckdb.DuckDBPyConnection, empty_is_ours: bool) -> None:
    names = {
        row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    }
    if not names and empty_is_ours:
        return
    if MARKER not in names:
        raise StoreError(
            f"{path} is a DuckDB file that Stepscope did not make, left as it is: use another"
        )
    _check_version(path, connection)


def _check_version(path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    row = connection.execute(f"SELECT max(schema_version) FROM {MARKER}").fetchone()
    version = row[0] if row else None
    if version is None or version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}, this Stepscope knows up to {SCHEMA_VERSION}: "
            "update Stepscope or use another file"
        )


def explained(path: Path, error: duckdb.Error) -> StoreError:
    """What DuckDB said, as one line for a person."""
    text = str(error)
    if "Conflicting lock" in text or "Could not set lock" in text:
        holder = re.search(r"PID (\d+)", text)
        process = f"process {holder[1]}" if holder else "another process"
        return StoreError(f"{path} is in use by {process}: stop it or use another file")
    if "different configuration" in text or "already attached" in text:
        return StoreError(f"{path} is in use by this process: close it first or use another file")
    if "Permission denied" in text or "Read-only file system" in text:
        return StoreError(f"{path} cannot be written: change its permissions or use another file")
    first = text.splitlines()[0] if text else type(error).__name__
    return StoreError(f"{path} cannot be opened, it may be damaged ({first}): use another file")
