"""The keys and values at the beginning of a GGUF file, without its tensors and without torch.

The gguf package wraps every string of a vocabulary in arrays of its own, which takes seconds; this
reads the same values in the time of one pass over the bytes. Format: GGUF specification, version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import UserError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# By GGUF's number of the type: what struct calls it.
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_FORMATS |= {12: "d"}
_MOST_BYTES = 1 << 30  # of one string or array: more is damage, not a vocabulary


def gguf_fields(path: Path) -> dict[str, Any]:
    """All key-value pairs as Python values. Raises UserError for what is no whole GGUF header."""
    return gguf_header(path)[0]


def gguf_header(path: Path) -> tuple[dict[str, Any], int]:
    """Those pairs, and the offset at which they end, bytes; raises the same."""
    try:
        with path.open("rb") as file:
            return _fields(file), file.tell()
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise UserError(
            f"{path}: not a complete GGUF file ({error}); fetch it again, or give another"
        ) from None


def _fields(file: BinaryIO) -> dict[str, Any]:
    magic, version, _, count = file.read(4), *_unpack(file, "<IQQ")
    if magic != _MAGIC or version not in _VERSIONS:
        raise ValueError(f"it begins with {magic!r} and version {version}")
    fields: dict[str, Any] = {}
    for _ in range(count):
        key = _string(file)
        fields[key] = _value(file, _unpack(file, "<I")[0])
    return fields


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        return _array(file)
    return _unpack(file, "<" + _FORMATS[kind])[0]


def _array(file: BinaryIO) -> list[Any]:
    kind, count = _unpack(file, "<IQ")
    if kind in (_STRING, _ARRAY):
        read: Callable[[BinaryIO], Any] = _string if kind == _STRING else _array
        return [read(file) for _ in range(count)]
    return list(_unpack(file, f"<{count}{_FORMATS[kind]}"))


def _string(file: BinaryIO) -> str:
    return _read(file, _unpack(file, "<Q")[0]).decode("utf-8")


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(layout, _read(file, struct.calcsize(layout)))


def _read(file: BinaryIO, size: int) -> bytes:
    data = file.read(size) if size <= _MOST_BYTES else b""
    if len(data) != size:
        raise ValueError("it ends too soon")
    return data
