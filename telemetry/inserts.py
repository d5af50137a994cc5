"""Rows into tables, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from telemetry.ddl import quoted
from telemetry.schema import KEYED

Tables = Mapping[str, pa.Table | pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one envelope."""

    run_id: str
    tables: Tables


def transact(connection: duckdb.DuckDBPyConnection, batches: Sequence[Batch]) -> None:
    """Commit all rows of the batches, or none."""
    connection.begin()
    try:
        for batch in batches:
            for table, rows in batch.tables.items():
                if rows.num_rows:
                    _insert(connection, batch.run_id, table, rows)
        connection.commit()
    except Exception:
        connection.rollback()
        raise


def _insert(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    table: str,
    rows: pa.Table | pa.RecordBatch,
) -> None:
    key = KEYED.get(table)
    latest = rows if key is None else _last_of_each(rows, key)
    connection.register("batch", latest)
    if key is not None:
        same_key = f"{quoted(key)} IN (SELECT {quoted(key)} FROM batch)"
        connection.execute(f"DELETE FROM {table} WHERE run_id = ? AND {same_key}", [run_id])
    connection.execute(f"INSERT INTO {table} BY NAME SELECT ? AS run_id, * FROM batch", [run_id])
    connection.unregister("batch")


def _last_of_each(rows: pa.Table | pa.RecordBatch, key: str) -> pa.Table | pa.RecordBatch:
    """Of rows with the same key the last one, in order."""
    keys = np.asarray(rows.column(key))
    _, from_end = np.unique(keys[::-1], return_index=True)
    return rows.take(pa.array(np.sort(len(keys) - 1 - from_end)))
