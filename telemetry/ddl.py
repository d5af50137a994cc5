"""DDL, Arrow schemas and documentation, all generated from `telemetry.schema`."""

from __future__ import annotations

import pyarrow as pa

from telemetry.schema import KEYED, SCHEMA_VERSION, TABLES, Col, columns
from telemetry.views import VIEWS

RUN_ID = Col("VARCHAR", "the run the row belongs to")
# One row in every file of ours: tells our files from others, and old ones from new ones.
MARKER = "stepscope"

_ARROW: dict[str, pa.DataType] = {
    "VARCHAR": pa.string(),
    "JSON": pa.string(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us"),
}


def quoted(name: str) -> str:
    """An identifier in SQL; `index` needs it."""
    return f'"{name}"'


def sql_columns(table: str) -> dict[str, Col]:
    """Columns of a table as stored, in order: run_id, then those of the record."""
    return {"run_id": RUN_ID, **columns(table)}


def create_statements() -> list[str]:
    """What makes an empty database ours, in order; each may run again on one of our files.

    Tables that lack a column of the schema (an older file) get it, filled with NULL.
    """
    tables = [_create_table(table) for table in TABLES]
    added = [_add_column(t, name, col) for t in TABLES for name, col in columns(t).items()]
    views = [f"CREATE OR REPLACE VIEW {view.name} AS\n{view.sql}" for view in VIEWS]
    return [*_create_marker(), *tables, *added, *views]


def _create_table(table: str) -> str:
    body = ", ".join(f"{quoted(n)} {c.sql}" for n, c in sql_columns(table).items())
    return f"CREATE TABLE IF NOT EXISTS {table} ({body})"


def _add_column(table: str, name: str, col: Col) -> str:
    return f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {quoted(name)} {col.sql}"


def _create_marker() -> list[str]:
    return [
        f"CREATE TABLE IF NOT EXISTS {MARKER} (schema_version INTEGER)",
        f"DELETE FROM {MARKER}",
        f"INSERT INTO {MARKER} VALUES ({SCHEMA_VERSION})",
    ]


def arrow_type(sql: str) -> pa.DataType:
    """The Arrow type in which a column of this SQL type travels; ENUMs as dictionaries."""
    if sql.startswith("ENUM"):
        return pa.dictionary(pa.int32(), pa.string())
    return _ARROW[sql]


def arrow_schema(table: str) -> pa.Schema:
    """Columns of a table in order, without run_id, as the recorder sends them."""
    return pa.schema([(name, arrow_type(col.sql)) for name, col in columns(table).items()])


def schema_markdown() -> str:
    """The tables and views as Markdown, for docs/."""
    title = f"# Telemetry schema, version {SCHEMA_VERSION}"
    tables = [_table_markdown(table) for table in TABLES]
    return "\n\n".join([title, *tables, _views_markdown()]) + "\n"


def _table_markdown(table: str) -> str:
    doc = (TABLES[table].__doc__ or "").strip()
    key = f" One row per {KEYED[table]}: a later row replaces it." if table in KEYED else ""
    ruler = "| column | type | unit | meaning |\n| --- | --- | --- | --- |"
    head = f"## `{table}`\n\n{doc}{key}\n\n{ruler}"
    rows = [f"| {n} | {c.sql} | {c.unit} | {c.doc} |" for n, c in sql_columns(table).items()]
    return "\n".join([head, *rows])


def _views_markdown() -> str:
    rows = [f"| `{view.name}` | {view.doc} |" for view in VIEWS]
    return "\n".join(["## Views", "", "| view | meaning |", "| --- | --- |", *rows])
