"""How telemetry travels: one numbered envelope with all tables, as bytes.

Layout: 4 bytes (little-endian) with the length of a JSON header, the header
{"sequence", "dropped", "tables": [[name, bytes], …]}, then an Arrow IPC stream per table.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Envelope:
    """All rows since the envelope before; sequence counts from 0, so that a gap is a lost one.

    dropped: rows per table left out since the envelope before (also an event in the data).
    """

    sequence: int
    tables: Mapping[str, pa.Table]
    dropped: Mapping[str, int] = field(default_factory=dict)


def encode_envelope(envelope: Envelope) -> bytes:
    """The envelope as one message."""
    streams = {name: _stream(table) for name, table in envelope.tables.items()}
    header = {
        "sequence": envelope.sequence,
        "dropped": dict(envelope.dropped),
        "tables": [[name, len(stream)] for name, stream in streams.items()],
    }
    text = json.dumps(header).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *streams.values()])


def _stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def decode_envelope(payload: bytes) -> Envelope:
    """The tables share the payload's memory. Raises ValueError if it is not one envelope."""
    try:
        header, offset = _header(payload)
        tables, view = {}, pa.py_buffer(payload)
        for name, length in header["tables"]:
            tables[name] = pa.ipc.open_stream(view.slice(offset, length)).read_all()
            offset += length
        return Envelope(header["sequence"], tables, header["dropped"])
    except (struct.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a telemetry envelope ({len(payload)} bytes): {error}") from error


def _header(payload: bytes) -> tuple[dict[str, Any], int]:
    (length,) = _LENGTH.unpack_from(payload)
    start = _LENGTH.size
    return json.loads(payload[start : start + length]), start + length
