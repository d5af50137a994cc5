"""Preallocated buffers that the engine's thread fills in microseconds.

Strings become codes and None a missing mark while filling; the sender's thread makes Arrow of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.batches import table_of_rows
from telemetry.ddl import arrow_schema

# No count or time comes near it; floats use NaN.
MISSING = -(2**63)
NO_CODE = -1
Ints = npt.NDArray[np.int64]
IntColumn = Sequence[int] | Ints


class Codes(dict[str | None, int]):
    """Each new string gets the next code; None has NO_CODE."""

    def __init__(self) -> None:
        super().__init__({None: NO_CODE})

    def __missing__(self, value: str) -> int:
        self[value] = code = len(self) - 1
        return code

    def strings(self) -> list[str]:
        """The strings by code. One call into the dict, so that another thread may add to it."""
        return [value for value in list(self) if value is not None]


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads the named attributes into a tuple, also for one name or none."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


class Layout:
    """The columns of a table by kind of storage; shared by both halves of its buffer."""

    def __init__(self, table: str) -> None:
        self.schema = arrow_schema(table)
        floats = [f.name for f in self.schema if pa.types.is_floating(f.type)]
        ints = [f.name for f in self.schema if pa.types.is_integer(f.type)]
        texts = [f.name for f in self.schema if f.name not in {*floats, *ints}]
        self.codes = {name: Codes() for name in texts}
        self.dtype = np.dtype([*((n, "f8") for n in floats), *((n, "i8") for n in ints + texts)])
        self.floats, self.ints, self.texts = _values(floats), _values(ints), _values(texts)
        self._text_codes = tuple(self.codes.values())

    def row(self, record: Any) -> tuple[float | int | None, ...]:
        """A record as a row of dtype; numpy turns None in a float field into NaN."""
        ints = [MISSING if v is None else v for v in self.ints(record)]
        codes = [c[v] for c, v in zip(self._text_codes, self.texts(record), strict=True)]
        return (*self.floats(record), *ints, *codes)

    def array(self, field: pa.Field, data: npt.NDArray[Any]) -> pa.Array:
        """A filled column as Arrow. Raises ArrowInvalid where a value exceeds its type."""
        if pa.types.is_floating(field.type):
            return pa.array(data, field.type, from_pandas=True)
        if pa.types.is_integer(field.type):
            return pa.array(data, mask=data == MISSING).cast(field.type)
        codes = pa.array(data.astype(np.int32), mask=data == NO_CODE)
        strings = pa.array(self.codes[field.name].strings(), pa.string())
        coded = pa.DictionaryArray.from_arrays(codes, strings)
        return coded if pa.types.is_dictionary(field.type) else coded.dictionary_decode()


class Rows:
    """Records of one table, stored row by row."""

    def __init__(self, layout: Layout, capacity: int) -> None:
        self._layout = layout
        self._data = np.zeros(capacity, layout.dtype)
        self._used = 0

    def fits(self, count: int) -> bool:
        """Whether count more rows have room; an empty buffer grows for any count."""
        if self._used == 0 and count > len(self._data):
            self._data = np.zeros(count, self._layout.dtype)
        return self._used + count <= len(self._data)

    def add(self, records: Sequence[Any]) -> None:
        for record in records:
            self._data[self._used] = self._layout.row(record)
            self._used += 1

    def take(self) -> pa.Table:
        """The rows as Arrow, leaving the buffer empty."""
        rows, schema = self._data[: self._used], self._layout.schema
        arrays = [self._layout.array(f, np.ascontiguousarray(rows[f.name])) for f in schema]
        self._used = 0
        return pa.table(arrays, schema=schema)


class SequenceColumns(Protocol):
    """Columns of `sequence_steps` for one step; engine.sink.SequenceSteps is one."""

    @property
    def request_id(self) -> IntColumn: ...
    @property
    def slot(self) -> IntColumn: ...
    @property
    def phase(self) -> Sequence[str]: ...
    @property
    def tokens(self) -> IntColumn: ...
    @property
    def emitted_tokens(self) -> IntColumn: ...
    @property
    def context_tokens(self) -> IntColumn: ...
    @property
    def computed_context_tokens(self) -> IntColumn: ...


class Columns:
    """`sequence_steps`, stored column by column: a step fills a slice of each."""

    def __init__(self, layout: Layout, capacity: int) -> None:
        self._layout = layout
        self._phase = layout.codes["phase"]
        self._last_phases: tuple[Sequence[str], Ints] = ((), np.zeros(0, np.int64))
        self._allocate(capacity)
        self._used = 0

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        self._data: dict[str, Ints] = {
            f.name: np.zeros(capacity, np.int64) for f in self._layout.schema
        }
        self._plain = [(n, a) for n, a in self._data.items() if n not in ("step", "phase")]

    def fits(self, count: int) -> bool:
        """Whether count more rows have room; an empty buffer grows for any count."""
        if self._used == 0 and count > self._capacity:
            self._allocate(count)
        return self._used + count <= self._capacity

    def add(self, step: int, sequences: SequenceColumns) -> None:
        """Raises ValueError where a column is not as long as request_id."""
        count = len(sequences.request_id)
        end = self._used + count
        here = slice(self._used, end)
        for name, data in self._plain:
            values = getattr(sequences, name)
            if len(values) != count:  # numpy would repeat a single value
                raise ValueError(f"sequence_steps: {len(values)} {name} for {count} request_id")
            data[here] = values
        self._data["phase"][here] = self._phase_codes(sequences.phase)
        self._data["step"][here] = step
        self._used = end

    def _phase_codes(self, phases: Sequence[str]) -> Ints:
        """While only decodes run, every step hands over the same list."""
        if phases is not self._last_phases[0]:
            codes = np.array([self._phase[p] for p in phases], np.int64)
            self._last_phases = (phases, codes)
        return self._last_phases[1]

    def take(self) -> pa.Table:
        """The rows as Arrow, leaving the buffer empty."""
        schema, used = self._layout.schema, self._used
        arrays = [self._layout.array(f, self._data[f.name][:used]) for f in schema]
        self._used = 0
        return pa.table(arrays, schema=schema)


class Log:
    """Records that are never dropped, copied when added; grows as it must."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._values = _values(arrow_schema(table).names)
        self._rows: list[tuple[Any, ...]] = []

    def add(self, record: Any) -> None:
        self._rows.append(self._values(record))

    def take(self) -> pa.Table:
        """The rows as Arrow, leaving the log empty."""
        table = table_of_rows(self._table, self._rows)
        self._rows.clear()
        return table


@dataclass(frozen=True, slots=True)
class Half:
    """One of the two sets of buffers: the engine fills one while the sender empties the other."""

    rows: dict[str, Rows]
    sequences: Columns
    logs: dict[str, Log]

    def fits(self, table: str, count: int) -> bool:
        buffer = self.sequences if table == "sequence_steps" else self.rows[table]
        return buffer.fits(count)

    def take(self) -> dict[str, pa.Table]:
        """All tables that have rows, leaving the buffers empty."""
        buffers: dict[str, Rows | Columns | Log]
        buffers = {**self.rows, "sequence_steps": self.sequences, **self.logs}
        tables = {name: buffer.take() for name, buffer in buffers.items()}
        return {name: table for name, table in tables.items() if table.num_rows}
