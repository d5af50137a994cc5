"""From the engine's thread to numbered envelopes, 200 ms apart; an `engine.sink.Sink`."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from telemetry.batches import table_of, token_table
from telemetry.buffers import Columns, Half, Rows, SequenceColumns
from telemetry.clock import now_ns, seconds
from telemetry.departures import Departures
from telemetry.envelope import Envelope, decode_envelope, encode_envelope
from telemetry.schema import DROPPABLE, BlockRecord, EventRecord, RequestRecord, StepRecord

__all__ = [
    "CAPACITY",
    "Envelope",
    "Recorder",
    "RecorderError",
    "decode_envelope",
    "encode_envelope",
    "token_table",
]

# Rows that one half holds: at 200 ms an envelope, 40,000 steps/s with 16 sequences each.
CAPACITY: Mapping[str, int] = {
    "steps": 8192,
    "sequence_steps": 131072,
    "blocks": 32768,
    "kernel_samples": 8192,
    "device_samples": 256,
}
INTERVAL_S = 0.2


class RecorderError(Exception):
    """The sender has ended, so that records no longer leave."""


class Recorder:
    """Calls fill preallocated buffers and return; a thread of its own encodes and sends.

    droppable (live): where a buffer is full its rows are left out, counted, and reported as an
    event of kind 'drop' {"table", "rows"}. Not droppable (headless): the caller waits for room,
    and an envelope then leaves before interval_s is over. Requests and events always have room.

    send gets each envelope's bytes, may block, and is called from the sender's thread only. When
    it raises, `failure` keeps the error; further calls then do nothing if droppable, since
    telemetry must not stop a live engine, and raise RecorderError if not.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        *,
        droppable: bool,
        interval_s: float = INTERVAL_S,
        capacity: Mapping[str, int] | None = None,
    ) -> None:
        self.failure: Exception | None = None
        self._send = send
        self._droppable = droppable
        limits = {**CAPACITY, **(capacity or {})}
        self._filling, self._spare = _half(limits), _half(limits)
        self._dropped: Counter[str] = Counter()
        self._last_step: int | None = None
        self._sequence = 0
        self._departures = Departures(interval_s, now_ns())
        self._asked = self._served = 0  # flushes
        self._urgent = self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="telemetry-sender", daemon=True)
        self._thread.start()

    @property
    def thread_id(self) -> int | None:
        """The operating system's number of the sender's thread."""
        return self._thread.native_id

    # --- called from the engine's thread ---

    def step(self, record: StepRecord, sequences: SequenceColumns) -> None:
        """One step with what each sequence got; copied before the call returns."""
        count = len(sequences.request_id)
        with self._changed:
            self._last_step = record.step
            if self._has_room("steps", 1):
                self._filling.rows["steps"].add((record,))
            if count and self._has_room("sequence_steps", count):
                self._filling.sequences.add(record.step, sequences)
            if self._departures.step_ended(record.t_step_s, now_ns()):
                self._changed.notify_all()

    def request(self, record: RequestRecord) -> None:
        """The request's state now; replaces what was recorded of it. Never dropped."""
        self._log("requests", record)

    def event(self, record: EventRecord) -> None:
        """Never dropped."""
        self._log("events", record)

    def blocks(self, records: Sequence[BlockRecord]) -> None:
        """KV blocks that changed hands."""
        self.samples("blocks", records)

    def samples(self, table: str, records: Sequence[Any]) -> None:
        """Records of `kernel_samples`, `device_samples` or another table of rows."""
        with self._changed:
            if records and self._has_room(table, len(records)):
                self._filling.rows[table].add(records)

    def _log(self, table: str, record: Any) -> None:
        with self._changed:
            if self._works():
                self._filling.rows[table].add((record,))

    def _works(self) -> bool:
        if self.failure is None and not self._closing:
            return True
        if self._droppable:
            return False
        reason = self.failure or "it was closed"
        raise RecorderError(f"telemetry cannot be recorded any more: {reason}")

    def _has_room(self, table: str, count: int) -> bool:
        """Whether rows can be added now; if not droppable, waits until they can."""
        if not self._works():
            return False
        if self._filling.fits(table, count):
            return True
        if self._droppable:
            self._dropped[table] += count
            return False
        self._hurry()
        self._changed.wait_for(lambda: self.failure or self._filling.fits(table, count))
        return self._works()

    # --- from any thread ---

    def flush(self) -> None:
        """Wait until all that was recorded before has been sent. Raises RecorderError."""
        with self._changed:
            if not self._closing:
                self._asked += 1
                asked = self._asked
                self._hurry()
                self._changed.wait_for(lambda: self.failure or self._served >= asked)
        self._raise_failure()

    def close(self) -> None:
        """Send what is left and end the thread. Raises RecorderError if something was not sent."""
        with self._changed:
            self._closing = True
            self._hurry()
        self._thread.join()
        self._raise_failure()

    def _hurry(self) -> None:
        self._urgent = True
        self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise RecorderError(f"telemetry could not be sent: {self.failure}") from self.failure

    # --- the sender's thread ---

    def _run(self) -> None:
        try:
            while self._send_one():
                pass
        except Exception as error:  # kept for the engine's thread, which must not wait for ever
            with self._changed:
                self.failure = error
                self._changed.notify_all()

    def _send_one(self) -> bool:
        """Wait, swap, send; False after the last."""
        with self._changed:
            self._wait()
            self._urgent = False
            self._departures.left(now_ns())
            self._filling, self._spare = self._spare, self._filling
            dropped, self._dropped = self._dropped, Counter()
            step, asked, last = self._last_step, self._asked, self._closing
            self._changed.notify_all()
        self._send_tables(_with_drops(self._spare.take(), dropped, step), dropped)
        with self._changed:
            self._served = asked
            self._changed.notify_all()
        return not last

    def _wait(self) -> None:
        """Until the envelope leaves: a step that ends meanwhile may put that off."""
        while not self._urgent and (left_ns := self._departures.leaves_ns() - now_ns()) > 0:
            self._changed.wait(min(seconds(left_ns), threading.TIMEOUT_MAX))

    def _send_tables(self, tables: dict[str, pa.Table], dropped: Mapping[str, int]) -> None:
        if tables:
            self._send(encode_envelope(Envelope(self._sequence, tables, dropped)))
            self._sequence += 1


def _with_drops(
    tables: dict[str, pa.Table], dropped: Mapping[str, int], step: int | None
) -> dict[str, pa.Table]:
    """Adds an event per table of which rows were dropped: the data itself says what it lacks."""
    if not dropped:
        return tables
    details = [json.dumps({"table": table, "rows": rows}) for table, rows in dropped.items()]
    events = [EventRecord(now_ns(), step, "drop", detail) for detail in details]
    parts = [tables["events"]] if "events" in tables else []
    merged = pa.concat_tables([*parts, table_of("events", events)])
    return {**tables, "events": merged}


def _half(capacity: Mapping[str, int]) -> Half:
    """Only what is droppable has a limit: of the other tables nothing may be lost."""
    limited = {t: Rows(t, capacity[t]) for t in sorted(DROPPABLE) if t != "sequence_steps"}
    rows = {**limited, "requests": Rows("requests"), "events": Rows("events")}
    return Half(rows, Columns(capacity["sequence_steps"]))
