"""What goes in at the recorder comes out at the reader, NULLs included."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_records import Message, Sequences, a_run, a_step, any_record

from telemetry.batches import table_of
from telemetry.ddl import quoted
from telemetry.recorder import Recorder, decode_envelope, token_table
from telemetry.schema import KEYED, SEQUENCE_PHASES, TABLES, columns
from telemetry.store import Store

ROWS = ("steps", "blocks", "kernel_samples", "device_samples")


def through(store: Store, record: Any) -> str:
    """Record through a lossless recorder into a new run; -> its run_id."""
    run_id = store.start_run(a_run())
    recorder = Recorder(
        lambda payload: store.append(run_id, decode_envelope(payload).tables), droppable=False
    )
    record(recorder)
    recorder.close()
    store.flush()
    return run_id


def stored(store: Store, table: str, run_id: str) -> list[tuple[Any, ...]]:
    names = ", ".join(quoted(n) for n in columns(table))
    order = "request_id" if table in KEYED else "rowid"
    sql = f"SELECT {names} FROM {table} WHERE run_id = ? ORDER BY {order}"
    return store.reader().rows(sql, [run_id])


def as_rows(table: str, records: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(r, name) for name in columns(table)) for r in records]


@pytest.mark.parametrize("table", ROWS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_rows_of_each_table(memory: Store, table: str, data: st.DataObject) -> None:
    records = data.draw(st.lists(any_record(table), max_size=5))
    run_id = through(memory, lambda recorder: recorder.samples(table, records))
    assert stored(memory, table, run_id) == as_rows(table, records)


@given(records=st.lists(any_record("events"), max_size=5))
@settings(max_examples=15, deadline=None)
def test_events(memory: Store, records: list[Any]) -> None:
    run_id = through(memory, lambda recorder: [recorder.event(r) for r in records])
    assert stored(memory, "events", run_id) == as_rows("events", records)


@given(records=st.lists(any_record("requests"), max_size=5))
@settings(max_examples=15, deadline=None)
def test_requests_keep_the_last_state(memory: Store, records: list[Any]) -> None:
    run_id = through(memory, lambda recorder: [recorder.request(r) for r in records])
    last = {r.request_id: r for r in records}
    expected = as_rows("requests", [last[key] for key in sorted(last)])
    assert stored(memory, "requests", run_id) == expected


@given(record=any_record("runs"))
@settings(max_examples=15, deadline=None)
def test_runs(memory: Store, record: Any) -> None:
    run_id = memory.start_run(record)
    (row,) = stored(memory, "runs", run_id)
    (expected,) = as_rows("runs", [record])
    assert row == (expected[0].astimezone(UTC).replace(tzinfo=None), *expected[1:])


@given(rows=st.lists(st.lists(st.sampled_from(SEQUENCE_PHASES), max_size=4), max_size=4))
@settings(max_examples=15, deadline=None)
def test_sequence_steps_are_the_columns_of_each_step(memory: Store, rows: list[list[str]]) -> None:
    def columns_of(phases: list[str]) -> Sequences:
        n = list(range(len(phases)))
        return Sequences(n, n, phases, [7] * len(n), [1] * len(n), n, [i + 9 for i in n])

    def record(recorder: Recorder) -> None:
        for step, phases in enumerate(rows):
            recorder.step(a_step(step), columns_of(phases))

    expected = [
        (step, i, i, phase, 7, 1, i, i + 9)
        for step, phases in enumerate(rows)
        for i, phase in enumerate(phases)
    ]
    run_id = through(memory, record)
    assert stored(memory, "sequence_steps", run_id) == expected
    assert [row[0] for row in stored(memory, "steps", run_id)] == list(range(len(rows)))


def test_tokens_of_messages_in_their_order(memory: Store) -> None:
    messages = [
        Message(3, 50, [1, 2], [0, 4], [700, 701]),
        Message(4, 60),
        Message(5, 70, [2], [5], [702]),
    ]
    run_id = memory.start_run(a_run())
    memory.append(run_id, {"tokens": token_table(messages)})
    memory.flush()
    assert stored(memory, "tokens", run_id) == [
        (1, 0, 700, 3, 50),
        (2, 4, 701, 3, 50),
        (2, 5, 702, 5, 70),
    ]


def test_no_token_messages_give_no_rows() -> None:
    assert token_table([]).num_rows == 0


@pytest.mark.parametrize("table", TABLES)
def test_no_records_give_an_empty_table_of_the_schema(table: str) -> None:
    assert table_of(table, []).schema.names == list(columns(table))
