"""The recorder: one numbered envelope, drops that are counted, waits that lose nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
from telemetry_records import a_request, a_step, an_event, sequences

from telemetry.recorder import Envelope, Recorder, RecorderError, decode_envelope, encode_envelope
from telemetry.schema import BlockRecord

NEVER = 3600.0  # an interval that no test waits for


class Pipe:
    """Takes envelopes only while it is open, as a pipe whose other end does not read."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)
        self.envelopes: list[Envelope] = []
        if is_open:
            self.opened.set()

    def send(self, payload: bytes) -> None:
        self.entered.release()
        assert self.opened.wait(30)
        self.envelopes.append(decode_envelope(payload))

    def column(self, table: str, name: str) -> list[object]:
        tables = [e.tables[table] for e in self.envelopes if table in e.tables]
        return [value for t in tables for value in t.column(name).to_pylist()]

    def drops(self) -> list[dict[str, object]]:
        kinds, details = self.column("events", "kind"), self.column("events", "detail")
        return [json.loads(str(d)) for k, d in zip(kinds, details, strict=True) if k == "drop"]


def blocked(pipe: Pipe) -> Recorder:
    """A live recorder whose sender already hangs in send."""
    capacity = {"steps": 4, "sequence_steps": 10, "blocks": 5}
    recorder = Recorder(pipe.send, droppable=True, interval_s=0.001, capacity=capacity)
    recorder.event(an_event(1, "load"))
    assert pipe.entered.acquire(timeout=30)
    return recorder


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_all_tables_leave_in_one_envelope() -> None:
    pipe = Pipe()
    recorder = Recorder(pipe.send, droppable=True, interval_s=NEVER)
    recorder.step(a_step(0), sequences(3))
    recorder.request(a_request(1))
    recorder.event(an_event(1, "load"))
    recorder.blocks([BlockRecord(0, 2, "used", 1, 1), BlockRecord(0, 3, "free", None, 0)])
    recorder.close()
    (envelope,) = pipe.envelopes
    assert {name: table.num_rows for name, table in envelope.tables.items()} == {
        "steps": 1,
        "sequence_steps": 3,
        "requests": 1,
        "events": 1,
        "blocks": 2,
    }
    assert (envelope.sequence, envelope.dropped) == (0, {})


def test_envelopes_are_numbered_and_none_is_empty() -> None:
    pipe = Pipe()
    recorder = Recorder(pipe.send, droppable=True, interval_s=NEVER)
    for step in range(3):
        recorder.step(a_step(step), sequences(1))
        recorder.flush()
        recorder.flush()
    recorder.close()
    assert [e.sequence for e in pipe.envelopes] == [0, 1, 2]


def test_the_interval_sends_without_being_asked() -> None:
    pipe = Pipe()
    recorder = Recorder(pipe.send, droppable=True, interval_s=0.001)
    recorder.step(a_step(0), sequences(1))
    assert pipe.entered.acquire(timeout=30)
    recorder.close()


def test_within_the_interval_nothing_leaves() -> None:
    pipe = Pipe()
    recorder = Recorder(pipe.send, droppable=True, interval_s=NEVER)
    recorder.step(a_step(0), sequences(1))
    assert not pipe.entered.acquire(timeout=0.3)
    recorder.close()


def test_records_are_copied_when_recorded() -> None:
    pipe = Pipe()
    recorder = Recorder(pipe.send, droppable=True, interval_s=NEVER)
    request, step, columns = a_request(1, output_tokens=3), a_step(0, flops=5), sequences(2)
    recorder.request(request)
    recorder.step(step, columns)
    request.output_tokens, step.flops, columns.tokens[0] = 99, 99, 99
    recorder.close()
    assert pipe.column("requests", "output_tokens") == [3]
    assert pipe.column("steps", "flops") == [5]
    assert pipe.column("sequence_steps", "tokens") == [1, 1]


def test_while_send_blocks_full_buffers_drop_and_count() -> None:
    pipe = Pipe(is_open=False)
    recorder = blocked(pipe)
    for step in range(7):
        recorder.step(a_step(step), sequences(4))
    recorder.blocks([BlockRecord(6, i, "used", 1, 1) for i in range(4)])
    recorder.blocks([BlockRecord(6, i, "free", None, 0) for i in range(3)])
    pipe.opened.set()
    recorder.close()
    assert pipe.column("steps", "step") == [0, 1, 2, 3]
    assert pipe.column("sequence_steps", "step") == [0] * 4 + [1] * 4
    assert pipe.column("blocks", "state") == ["used"] * 4
    lost = {"steps": 3, "sequence_steps": 20, "blocks": 3}
    assert {str(d["table"]): d["rows"] for d in pipe.drops()} == lost
    assert pipe.envelopes[1].dropped == lost
    at = dict(zip(pipe.column("events", "kind"), pipe.column("events", "step"), strict=True))
    assert at["drop"] == 6


def test_drops_are_reported_once() -> None:
    pipe = Pipe(is_open=False)
    recorder = blocked(pipe)
    for step in range(6):
        recorder.step(a_step(step), sequences(0))
    pipe.opened.set()
    recorder.flush()
    recorder.step(a_step(6), sequences(0))
    recorder.close()
    assert pipe.column("steps", "step") == [0, 1, 2, 3, 6]
    assert pipe.drops() == [{"table": "steps", "rows": 2}]
    assert [e.dropped for e in pipe.envelopes] == [{}, {"steps": 2}, {}]


def test_requests_and_events_are_never_dropped() -> None:
    pipe = Pipe(is_open=False)
    recorder = blocked(pipe)
    for i in range(20_000):
        recorder.request(a_request(i))
        recorder.event(an_event(i, "preempt"))
    pipe.opened.set()
    recorder.close()
    assert pipe.column("requests", "request_id") == list(range(20_000))
    assert pipe.column("events", "t_ns")[1:] == list(range(20_000))
    assert pipe.drops() == []


def test_headless_the_caller_waits_and_loses_nothing() -> None:
    pipe = Pipe(is_open=False)
    capacity = {"steps": 4, "sequence_steps": 10}
    recorder = Recorder(pipe.send, droppable=False, interval_s=NEVER, capacity=capacity)

    def engine() -> None:
        for step in range(100):
            recorder.step(a_step(step), sequences(3))

    thread = in_thread(engine)
    assert pipe.entered.acquire(timeout=30)  # full, so an envelope leaves before its time
    thread.join(0.3)
    assert thread.is_alive()
    pipe.opened.set()
    thread.join(30)
    recorder.close()
    assert pipe.column("steps", "step") == list(range(100))
    assert pipe.column("sequence_steps", "step") == [s for s in range(100) for _ in range(3)]
    assert pipe.drops() == []


@pytest.mark.parametrize("droppable", [True, False])
def test_one_step_larger_than_the_buffer_still_fits(droppable: bool) -> None:
    pipe = Pipe()
    capacity = {"sequence_steps": 4, "blocks": 2}
    recorder = Recorder(pipe.send, droppable=droppable, interval_s=NEVER, capacity=capacity)
    recorder.step(a_step(0), sequences(50))
    recorder.blocks([BlockRecord(0, i, "free", None, 0) for i in range(9)])
    recorder.close()
    assert pipe.column("sequence_steps", "slot") == list(range(50))
    assert pipe.column("blocks", "block") == list(range(9))


def broken(payload: bytes) -> None:
    raise BrokenPipeError("the owner is gone")


def test_headless_a_broken_pipe_reaches_the_caller() -> None:
    recorder = Recorder(broken, droppable=False, interval_s=0.001)
    recorder.event(an_event(1, "load"))
    with pytest.raises(RecorderError, match="the owner is gone"):
        recorder.flush()
    with pytest.raises(RecorderError, match="the owner is gone"):
        recorder.step(a_step(0), sequences(1))
    with pytest.raises(RecorderError, match="the owner is gone"):
        recorder.close()


def test_headless_a_caller_that_waits_learns_of_a_broken_pipe() -> None:
    recorder = Recorder(broken, droppable=False, interval_s=NEVER, capacity={"steps": 1})

    def engine() -> None:
        for step in range(3):  # one in each half, and one that has to wait
            recorder.step(a_step(step), sequences(0))

    with pytest.raises(RecorderError, match="the owner is gone"):
        engine()
    assert isinstance(recorder.failure, BrokenPipeError)


def test_live_a_broken_pipe_does_not_stop_the_engine() -> None:
    recorder = Recorder(broken, droppable=True, interval_s=NEVER)
    recorder.event(an_event(1, "load"))
    with pytest.raises(RecorderError, match="the owner is gone"):
        recorder.flush()
    recorder.step(a_step(0), sequences(1))
    recorder.request(a_request(1))
    assert isinstance(recorder.failure, BrokenPipeError)


def test_a_closed_headless_recorder_says_so() -> None:
    recorder = Recorder(Pipe().send, droppable=False)
    recorder.close()
    recorder.close()
    with pytest.raises(RecorderError, match="closed"):
        recorder.event(an_event(1, "load"))


def test_a_value_beyond_its_column_is_an_error_not_another_value() -> None:
    recorder = Recorder(Pipe().send, droppable=False, interval_s=NEVER)
    recorder.blocks([BlockRecord(0, 0, "used", 1, 40_000)])
    with pytest.raises(RecorderError, match="40000"):
        recorder.close()


def test_columns_of_unequal_length_are_refused() -> None:
    recorder = Recorder(Pipe().send, droppable=True, interval_s=NEVER)
    columns = sequences(3)
    columns.tokens = [1]
    with pytest.raises(ValueError, match="1 tokens for 3 request_id"):
        recorder.step(a_step(0), columns)
    recorder.close()


def test_an_envelope_that_is_cut_or_foreign_is_refused() -> None:
    whole = Pipe()
    recorder = Recorder(whole.send, droppable=True, interval_s=NEVER)
    recorder.step(a_step(0), sequences(1))
    recorder.close()
    payload = encode_envelope(whole.envelopes[0])
    assert decode_envelope(payload).tables["steps"].equals(whole.envelopes[0].tables["steps"])
    for bad in (b"", b"\x02\x00", payload[:40], payload[: len(payload) // 2], b"\x02\0\0\0[]"):
        with pytest.raises(ValueError, match="not a telemetry envelope"):
            decode_envelope(bad)


def test_an_envelope_that_is_due_leaves_as_a_step_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_ns = 0
    monkeypatch.setattr("telemetry.recorder.now_ns", lambda: clock_ns)
    pipe = Pipe()
    recorder = Recorder(pipe.send, droppable=True, interval_s=NEVER)
    recorder.step(a_step(0), sequences(1))
    assert not recorder._urgent, "not due: the next step may join it"
    clock_ns = int(NEVER * 1e9)
    recorder.step(a_step(1), sequences(1))
    assert pipe.entered.acquire(timeout=30), "long before its timer ends"
    recorder.close()
    assert pipe.column("steps", "step") == [0, 1]
