"""Records to Arrow tables whose schema is `arrow_schema(table)`: NULL for None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.ddl import arrow_schema
from telemetry.schema import columns


class Tokens(Protocol):
    """All tokens of one step; engine.messages.TokenMessage is one."""

    @property
    def step(self) -> int: ...
    @property
    def t_ns(self) -> int: ...
    @property
    def request_ids(self) -> Sequence[int]: ...
    @property
    def indexes(self) -> Sequence[int]: ...
    @property
    def token_ids(self) -> Sequence[int]: ...


def table_of(table: str, records: Sequence[Any]) -> pa.Table:
    """Records of a table (dataclasses of telemetry.schema) as its Arrow table."""
    names = arrow_schema(table).names
    return table_of_columns(table, [[getattr(r, name) for r in records] for name in names])


def table_of_rows(table: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows, each with a value for every column in order, as an Arrow table."""
    return table_of_columns(table, list(zip(*rows, strict=True)) or [()] * len(columns(table)))


def table_of_columns(table: str, values: Sequence[Sequence[Any]]) -> pa.Table:
    """Values of every column of a table in order, as an Arrow table."""
    schema = arrow_schema(table)
    arrays = [_array(v, f.type) for v, f in zip(values, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind, from_pandas=pa.types.is_floating(kind))  # NaN is NULL too


def token_table(messages: Sequence[Tokens]) -> pa.Table:
    """Messages of the token channel as rows of `tokens`, in the order they came."""
    lengths = [len(m.request_ids) for m in messages]
    values = {
        "request_id": _one_column([m.request_ids for m in messages]),
        "index": _one_column([m.indexes for m in messages]),
        "token_id": _one_column([m.token_ids for m in messages]),
        "step": np.repeat(np.array([m.step for m in messages], np.int64), lengths),
        "t_ns": np.repeat(np.array([m.t_ns for m in messages], np.int64), lengths),
    }
    schema = arrow_schema("tokens")
    arrays = [pa.array(values[f.name]).cast(f.type) for f in schema]
    return pa.table(arrays, schema=schema)


def _one_column(parts: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *(np.asarray(p, np.int64) for p in parts)])
