"""Buffers that the engine's thread fills in microseconds; the sender's thread makes Arrow of them.

Records become tuples, which copies them; columns are copied into preallocated ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.batches import table_of_columns
from telemetry.ddl import arrow_schema
from telemetry.schema import SEQUENCE_PHASES

Ints = npt.NDArray[np.int64]
IntColumn = Sequence[int] | Ints


class Rows:
    """Records of one table, taken apart when added. capacity None: always has room."""

    def __init__(self, table: str, capacity: int | None = None) -> None:
        self._table, self._capacity = table, capacity
        names = arrow_schema(table).names
        self._values = attrgetter(*names)
        self._columns: list[list[Any]] = [[] for _ in names]

    def fits(self, count: int) -> bool:
        """Whether count more records have room; an empty buffer takes any count."""
        used = len(self._columns[0])
        return self._capacity is None or not used or used + count <= self._capacity

    def add(self, records: Sequence[Any]) -> None:
        rows = map(self._values, records)
        for column, values in zip(self._columns, zip(*rows, strict=True), strict=False):
            column += values  # by column at once: later every record would be out of the cache

    def take(self) -> pa.Table:
        """The rows as Arrow, leaving the buffer empty; ArrowInvalid for what no column holds."""
        columns, self._columns = self._columns, [[] for _ in self._columns]
        return table_of_columns(self._table, columns)


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

    def __init__(self, capacity: int) -> None:
        self._schema = arrow_schema("sequence_steps")
        self._phases = {phase: code for code, phase in enumerate(SEQUENCE_PHASES)}
        self._last_phases: tuple[Sequence[str], Ints] = ((), np.zeros(0, np.int64))
        self._allocate(capacity)
        self._used = 0

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        self._data: dict[str, Ints] = {n: np.zeros(capacity, np.int64) for n in self._schema.names}
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
            codes = np.array([self._phases[p] for p in phases], np.int64)
            self._last_phases = (phases, codes)
        return self._last_phases[1]

    def take(self) -> pa.Table:
        """The rows as Arrow, leaving the buffer empty: use it before the next row is added."""
        used, self._used = self._used, 0
        arrays = [self._array(field, self._data[field.name][:used]) for field in self._schema]
        return pa.table(arrays, schema=self._schema)

    def _array(self, field: pa.Field, data: Ints) -> pa.Array:
        """Raises ArrowInvalid where a value exceeds its type."""
        if not pa.types.is_dictionary(field.type):
            return pa.array(data).cast(field.type)
        codes = pa.array(data.astype(np.int32))
        return pa.DictionaryArray.from_arrays(codes, pa.array(SEQUENCE_PHASES, pa.string()))


@dataclass(frozen=True, slots=True)
class Half:
    """One of the two sets of buffers: the engine fills one while the sender empties the other."""

    rows: dict[str, Rows]
    sequences: Columns

    def fits(self, table: str, count: int) -> bool:
        buffer = self.sequences if table == "sequence_steps" else self.rows[table]
        return buffer.fits(count)

    def take(self) -> dict[str, pa.Table]:
        """All tables that have rows, leaving the buffers empty."""
        buffers: dict[str, Rows | Columns] = {**self.rows, "sequence_steps": self.sequences}
        tables = {name: buffer.take() for name, buffer in buffers.items()}
        return {name: table for name, table in tables.items() if table.num_rows}
