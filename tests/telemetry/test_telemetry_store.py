"""The store: one writer, whole envelopes, and failures that surface."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from telemetry_records import WALL, Message, a_request, a_run, a_step

from telemetry.batches import table_of, token_table
from telemetry.database import open_reader
from telemetry.reader import Reader
from telemetry.store import Store, StoreError

COUNT = "SELECT count(*) FROM tokens WHERE run_id = ?"


def some_tokens(step: int, count: int = 3) -> dict[str, object]:
    rows = list(range(count))
    return {"tokens": token_table([Message(step, step, rows, [step] * count, rows)])}


def test_run_ids_are_readable_unique_and_sort_by_start(memory: Store) -> None:
    later = [a_run(started_wall=WALL + timedelta(milliseconds=i)) for i in range(3)]
    run_ids = [memory.start_run(record) for record in later]
    assert sorted(run_ids) == run_ids
    assert re.fullmatch(r"20260728-140233-417-[0-9a-f]{6}", run_ids[0])
    assert memory.start_run(later[0]) != run_ids[0]


def test_a_later_state_of_a_request_replaces_the_earlier(memory: Store) -> None:
    run_id, other = memory.start_run(a_run()), memory.start_run(a_run())
    first = [a_request(1), a_request(2, output_tokens=1), a_request(2, output_tokens=2)]
    memory.append(run_id, {"requests": table_of("requests", first)})
    memory.append(other, {"requests": table_of("requests", [a_request(1, output_tokens=9)])})
    second = [a_request(1, output_tokens=5), a_request(3)]
    memory.append(run_id, {"requests": table_of("requests", second)})
    memory.flush()
    sql = "SELECT request_id, output_tokens FROM requests WHERE run_id = ? ORDER BY 1"
    assert memory.reader().rows(sql, [run_id]) == [(1, 5), (2, 2), (3, 0)]
    assert memory.reader().rows(sql, [other]) == [(1, 9)]


def test_a_file_gets_further_runs_and_keeps_the_earlier(path: Path) -> None:
    run_ids = []
    for count in (3, 4):
        store = Store(path)
        run_ids.append(store.start_run(a_run()))
        store.append(run_ids[-1], some_tokens(0, count))
        store.close()
    with open_reader(path) as reader:
        assert [reader.value(COUNT, [run_id]) for run_id in run_ids] == [3, 4]
        assert reader.value("SELECT count(*) FROM runs") == 2


def test_close_commits_what_is_queued(path: Path) -> None:
    store = Store(path)
    run_id = store.start_run(a_run())
    for step in range(200):
        store.append(run_id, some_tokens(step))
    store.close()
    with open_reader(path) as reader:
        assert reader.value(COUNT, [run_id]) == 600


def test_tables_of_one_envelope_appear_together(memory: Store) -> None:
    run_id = memory.start_run(a_run())
    reader, stop, halves = memory.reader(), threading.Event(), []
    sql = (
        "SELECT (SELECT count(*) FROM steps WHERE run_id = $run) * 3"
        " - (SELECT count(*) FROM tokens WHERE run_id = $run)"
    )

    def watch() -> None:
        while not stop.is_set():
            halves.append(reader.value(sql, {"run": run_id}))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    for step in range(60):
        tables = {"steps": table_of("steps", [a_step(step)]), **some_tokens(step)}
        memory.append(run_id, tables)
    memory.flush()
    stop.set()
    thread.join(30)
    assert halves
    assert set(halves) == {0}


def test_wait_commit_wakes_at_the_commit_and_times_out_without_one(memory: Store) -> None:
    run_id = memory.start_run(a_run())
    before = memory.committed
    assert memory.wait_commit(before, 0.05) == before
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(memory.wait_commit(before, 30)))
    thread.start()
    memory.append(run_id, some_tokens(0))
    thread.join(30)
    assert seen == [before + 1]
    assert memory.reader().value(COUNT, [run_id]) == 3
    assert memory.wait_commit(before, 30) == before + 1


def test_close_wakes_those_who_wait_for_a_commit() -> None:
    store = Store(None)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(store.wait_commit(0, 600)))
    thread.start()
    store.close()
    thread.join(30)
    assert seen == [0]


def test_a_failed_commit_surfaces_and_takes_no_other_envelope_along(path: Path) -> None:
    store = Store(path)
    run_id = store.start_run(a_run())
    for step in range(20):
        store.append(run_id, some_tokens(step))
        if step == 10:
            bad = table_of("steps", [a_step(0, phase="nonsense")])
            store.append(run_id, {"steps": bad, **some_tokens(99)})
    with pytest.raises(StoreError, match=r"run.duckdb: records could not be written .*nonsense"):
        store.flush()
    assert store.failure is not None
    assert store.reader().value(COUNT, [run_id]) == 60
    with pytest.raises(StoreError, match="nonsense"):
        store.close()
    store.close()
    with open_reader(path) as reader:
        assert reader.value(COUNT, [run_id]) == 60


def test_an_unknown_table_is_refused_at_once(memory: Store) -> None:
    with pytest.raises(StoreError, match="no table stepz: there are runs, steps"):
        memory.append("r", {"stepz": table_of("steps", [])})


def test_a_closed_store_refuses_every_use() -> None:
    store = Store(None)
    reader = store.reader()
    store.close()
    for use in (
        lambda: store.append("r", {}),
        store.flush,
        store.reader,
        lambda: reader.value("SELECT 1"),
        reader.fresh,
    ):
        with pytest.raises(StoreError, match="closed: open it again"):
            use()


def test_closing_ends_a_query_and_frees_the_file(path: Path) -> None:
    store = Store(path)
    reader = store.reader().fresh()
    failed: list[Exception] = []
    began = threading.Event()

    def query() -> None:
        began.set()
        try:
            reader.value("SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000) b")
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=query)
    thread.start()
    began.wait(30)
    store.close()
    thread.join(30)
    assert [type(error) for error in failed] == [StoreError]
    open_reader(path).close()


def test_each_thread_can_read_through_its_own_reader(memory: Store) -> None:
    run_id = memory.start_run(a_run())
    memory.append(run_id, some_tokens(0, 5))
    memory.flush()
    reader, found = memory.reader(), []
    threads = [
        threading.Thread(target=lambda: found.append(reader.fresh().value(COUNT, [run_id])))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [5] * 8


def test_a_reader_gives_frames_rows_and_values(memory: Store) -> None:
    reader = memory.reader()
    frame = reader.frame("SELECT range AS n FROM range(?)", [3])
    assert frame["n"].tolist() == [0, 1, 2]
    assert reader.row("SELECT 2^62::BIGINT AS n, NULL AS gap") == {"n": 2**62, "gap": None}
    assert reader.row("SELECT 1 WHERE false") is None
    assert reader.value("SELECT 1 WHERE false") is None
    assert reader.value("SELECT $x + 1", {"x": 4}) == 5


def test_queries_within_a_snapshot_see_the_same_rows(memory: Store) -> None:
    run_id = memory.start_run(a_run())
    reader = memory.reader()

    def count(who: Reader) -> int:
        return int(who.value("SELECT count(*) FROM steps WHERE run_id = ?", [run_id]))

    def step(number: int) -> None:
        memory.append(run_id, {"steps": table_of("steps", [a_step(number)])})
        memory.flush()

    step(0)
    with reader.snapshot() as same:
        assert same is reader
        assert count(reader) == 1
        step(1)
        assert count(reader) == 1
        assert count(memory.reader()) == 2
    assert count(reader) == 2


def test_a_snapshot_in_which_a_query_fails_leaves_a_reader_that_works(memory: Store) -> None:
    reader = memory.reader()
    with pytest.raises(Exception, match="no_such_table"), reader.snapshot():
        reader.rows("SELECT * FROM no_such_table")
    assert reader.value("SELECT 1") == 1


def test_a_snapshot_of_a_store_that_closes_ends_with_it() -> None:
    store = Store(None)
    reader = store.reader()
    with reader.snapshot():
        store.close()
        with pytest.raises(StoreError, match="closed"):
            reader.rows("SELECT 1")
