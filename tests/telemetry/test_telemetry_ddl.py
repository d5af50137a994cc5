"""The database says what the schema says, and plain duckdb opens it."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from telemetry.ddl import arrow_schema, create_statements, schema_markdown
from telemetry.schema import TABLES, columns
from telemetry.store import Store
from telemetry.views import VIEWS

_COLUMNS = """
SELECT column_name, data_type FROM duckdb_columns()
WHERE table_name = ? AND schema_name = 'main' ORDER BY column_index"""


@pytest.mark.parametrize("table", TABLES)
def test_plain_duckdb_shows_the_columns_of_the_schema(path: Path, table: str) -> None:
    Store(path).close()
    with duckdb.connect(path, config={"autoinstall_known_extensions": "false"}) as connection:
        found = connection.execute(_COLUMNS, [table]).fetchall()
    expected = [("run_id", "VARCHAR")] + [(n, c.sql) for n, c in columns(table).items()]
    assert found == expected


def test_every_view_runs_in_plain_duckdb(path: Path) -> None:
    Store(path).close()
    with duckdb.connect(path, config={"autoinstall_known_extensions": "false"}) as connection:
        for view in VIEWS:
            assert connection.execute(f"SELECT * FROM {view.name}").fetchall() == []


def test_statements_may_run_again_and_keep_rows() -> None:
    with duckdb.connect() as connection:
        for statement in create_statements():
            connection.execute(statement)
        connection.execute("INSERT INTO tokens BY NAME SELECT 'r' AS run_id, 7 AS token_id")
        for statement in create_statements():
            connection.execute(statement)
        assert connection.execute("SELECT run_id, token_id FROM tokens").fetchall() == [("r", 7)]


def test_an_older_file_gets_the_columns_it_lacks_as_null(path: Path) -> None:
    Store(path).close()
    with duckdb.connect(path) as connection:
        connection.execute("INSERT INTO tokens BY NAME SELECT 'old' AS run_id, 7 AS token_id")
        for view in VIEWS:
            connection.execute(f"DROP VIEW {view.name}")
        connection.execute("ALTER TABLE tokens DROP COLUMN t_ns")
    store = Store(path)
    assert store.reader().row("SELECT run_id, token_id, t_ns FROM tokens") == {
        "run_id": "old",
        "token_id": 7,
        "t_ns": None,
    }
    store.close()


@pytest.mark.parametrize("table", TABLES)
def test_arrow_columns_are_those_of_the_schema_without_run_id(table: str) -> None:
    schema = arrow_schema(table)
    assert schema.names == list(columns(table))
    coded = {f.name for f in schema if pa.types.is_dictionary(f.type)}
    assert coded == {n for n, c in columns(table).items() if c.sql.startswith("ENUM")}


def test_the_documentation_names_every_column_with_its_unit_and_every_view() -> None:
    text = schema_markdown()
    for table in TABLES:
        section = text.split(f"## `{table}`")[1].split("\n## ")[0]
        for name, col in columns(table).items():
            assert f"| {name} | {col.sql} | {col.unit} | {col.doc} |" in section
    assert all(f"`{view.name}`" in text for view in VIEWS)
