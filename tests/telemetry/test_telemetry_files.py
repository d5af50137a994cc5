"""Files that cannot be used get one line, and stay as they are to the byte."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from telemetry_records import a_run

from telemetry.database import open_reader
from telemetry.store import Store, StoreError

ROOT = Path(__file__).parents[2]
HELPERS = str(Path(__file__).parent)


def text(path: Path) -> None:
    path.write_text("my notes\n" * 900)


def short(path: Path) -> None:
    path.write_text("hi")


def empty(path: Path) -> None:
    path.touch()


def sqlite(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (run_id)")
    connection.commit()
    connection.close()


def foreign(path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE runs AS SELECT 'mine' AS run_id")


def newer(path: Path) -> None:
    Store(path).close()
    with duckdb.connect(path) as connection:
        connection.execute("UPDATE stepscope SET schema_version = 99")


def cut(path: Path) -> None:
    Store(path).close()
    path.write_bytes(path.read_bytes()[:20_000])


def corrupt(path: Path) -> None:
    Store(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))


BAD: dict[Callable[[Path], None], str] = {
    text: "is not a DuckDB file, and was left as it is: use another",
    short: "is not a DuckDB file, and was left as it is: use another",
    empty: "is not a DuckDB file, and was left as it is: use another",
    sqlite: "is not a DuckDB file, and was left as it is: use another",
    foreign: "is a DuckDB file that Stepscope did not make, left as it is: use another",
    newer: "has schema version 99, this Stepscope knows up to 1: update Stepscope",
    cut: "cannot be opened, it may be damaged",
    corrupt: "cannot be opened, it may be damaged",
}


def one_line(error: pytest.ExceptionInfo[StoreError], path: Path, expected: str) -> None:
    message = str(error.value)
    assert message.startswith(str(path))
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize("opens", [Store, open_reader], ids=["store", "reader"])
@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_what_is_not_ours_is_refused_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Path], None], opens: Callable[[Path], object]
) -> None:
    path = tmp_path / "some.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(StoreError) as error:
        opens(path)
    one_line(error, path, BAD[make])
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["some.db"]


def test_a_foreign_file_with_a_log_keeps_both_as_they_are(path: Path) -> None:
    """Opened for writing, DuckDB would merge the log into the file."""
    make = (
        "import duckdb, os, sys\n"
        "c = duckdb.connect(sys.argv[1])\n"
        "c.execute('CREATE TABLE mine AS SELECT 1 AS x')\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", make, str(path)], timeout=60)
    files = {p: p.read_bytes() for p in path.parent.iterdir()}
    assert len(files) == 2
    with pytest.raises(StoreError, match="Stepscope did not make"):
        Store(path)
    assert {p: p.read_bytes() for p in path.parent.iterdir()} == files


def test_a_missing_file_can_be_made_but_not_read(path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist: give a file"):
        open_reader(path)
    assert not path.exists()
    Store(path).close()
    open_reader(path).close()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no folder .*nowhere: make it"):
        Store(tmp_path / "nowhere" / "run.duckdb")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("opens", [Store, open_reader], ids=["store", "reader"])
def test_a_folder_is_not_a_file(tmp_path: Path, opens: Callable[[Path], object]) -> None:
    with pytest.raises(StoreError, match="is a folder: give the path of a file"):
        opens(tmp_path)


def test_a_file_that_cannot_be_written_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions do not hold for root, who often runs tests: so the answer is what is faked."""
    Store(path).close()
    access = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: mode != os.W_OK and access(p, mode))
    with pytest.raises(StoreError) as error:
        Store(path)
    one_line(error, path, "cannot be written: change its permissions or use another path")
    open_reader(path).close()


def test_an_interrupted_start_leaves_a_file_that_can_be_used(path: Path) -> None:
    duckdb.connect(path).close()
    with pytest.raises(StoreError, match="did not make"):
        open_reader(path)
    Store(path).close()
    open_reader(path).close()


@pytest.mark.parametrize("opens", [Store, open_reader], ids=["store", "reader"])
def test_a_file_in_use_by_this_process(path: Path, opens: Callable[[Path], object]) -> None:
    store = Store(path)
    with pytest.raises(StoreError) as error:
        opens(path)
    one_line(error, path, "is in use by this process: close it first or use another file")
    store.start_run(a_run())
    store.close()
    with open_reader(path) as reader:
        assert reader.value("SELECT count(*) FROM runs") == 1


WRITER = """
import sys
from pathlib import Path
from telemetry_records import Message, a_run
from telemetry.batches import token_table
from telemetry.store import Store
store = Store(Path(sys.argv[1]))
run_id = store.start_run(a_run())
rows = list(range(10))
for step in range(100000):
    store.append(run_id, {"tokens": token_table([Message(step, step, rows, rows, rows)])})
    if step % 7 == 0:
        store.flush()
        print(step, flush=True)
"""


def a_writer(path: Path) -> subprocess.Popen[str]:
    """A process that writes ten tokens a step, and prints a step once it is committed."""
    search = os.pathsep.join([str(ROOT), HELPERS])
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": search},
    )


@pytest.mark.process
@pytest.mark.parametrize("opens", [Store, open_reader], ids=["store", "reader"])
def test_a_file_in_use_by_another_process_names_it(
    path: Path, opens: Callable[[Path], object]
) -> None:
    with a_writer(path) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "0\n"
        with pytest.raises(StoreError) as error:
            opens(path)
        writer.kill()
    one_line(error, path, f"is in use by process {writer.pid}: stop it or use another file")


@pytest.mark.process
@pytest.mark.parametrize("opens", [Store, open_reader], ids=["store", "reader"])
def test_kill_9_keeps_everything_committed(path: Path, opens: Callable[[Path], object]) -> None:
    with a_writer(path) as writer:
        assert writer.stdout is not None
        for _ in range(40):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        printed = [int(line) for line in writer.stdout.read().split()]
    committed = printed[-1] if printed else 39 * 7
    opened = opens(path)
    reader = opened.reader() if isinstance(opened, Store) else opened
    steps = "SELECT step, count(*) FROM tokens GROUP BY step ORDER BY step"
    found = reader.rows(steps)
    assert len(found) > committed
    assert found == [(step, 10) for step in range(len(found))]
    opened.close()
