"""Recorded loads from files: CSV as Azure publishes them, JSONL as Mooncake does."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.workloads.workload import Piece, Scale, WorkItem, Workload

CSV_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
JSON_KEYS = "timestamp (ms), input_length, output_length and optionally hash_ids, prompt"
SUFFIXES = (".csv", ".jsonl")
HASH_BLOCK_TOKENS = 512  # of Mooncake's hash_ids (Qin et al., FAST 2025)


def file_workload(path: Path, name: str | None = None, scale: Scale | None = None) -> Workload:
    """The workload of a .csv or .jsonl file; past its last row it starts again, later.

    UserError names the file, the line and what is allowed.
    """
    rows = _read(path, name or path.stem)
    items = [scale.apply(row) for row in rows] if scale else rows
    return Workload(
        name=name or path.stem,
        description=f"{len(items):,} recorded requests of {path.name}",
        default_requests=len(items),
        item=partial(_cyclic_item, items),
        scale=scale,
        timed=True,
        file=path,
    )


def _cyclic_item(items: list[WorkItem], k: int) -> WorkItem:
    """Row k; after the last row the recording repeats one mean gap later."""
    lap, row = divmod(k, len(items))
    if not lap:
        return items[row]
    span_s = items[-1].arrival_s or 0.0
    # Without a gap to repeat (one row, or all at once) the rows come again every second.
    period_s = span_s * len(items) / max(1, len(items) - 1) or 1.0
    return replace(items[row], arrival_s=(items[row].arrival_s or 0.0) + lap * period_s)


def _read(path: Path, name: str) -> list[WorkItem]:
    """Rows by arrival, the first at 0 s."""
    readers = {".csv": _csv_rows, ".jsonl": _json_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"workload file {path}: use a file that ends in {' or '.join(SUFFIXES)}")
    try:
        rows = list(reader(path, name))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"workload file {path} cannot be read: {error}") from None
    if not rows:
        raise UserError(f"workload file {path} has no requests: give it at least one row")
    rows.sort(key=lambda row: row.arrival_s or 0.0)
    first_s = rows[0].arrival_s or 0.0
    return [replace(row, arrival_s=(row.arrival_s or 0.0) - first_s) for row in rows]


def _csv_rows(path: Path, name: str) -> Iterator[WorkItem]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = [column for column in CSV_COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise _bad(path, 1, f"has no column {missing[0]}", ",".join(CSV_COLUMNS))
        for row in reader:
            where = (path, reader.line_num)
            prompt, output = (_length(row[column], column, *where) for column in CSV_COLUMNS[1:])
            arrival_s = _csv_time_s(row["TIMESTAMP"], *where)
            yield WorkItem(arrival_s, prompt, output, None, name, line=reader.line_num)


def _csv_time_s(text: str | None, path: Path, line: int) -> float:
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        allowed = "a time such as 2023-11-16 18:15:46.68"
        raise _bad(path, line, f"TIMESTAMP is {text!r}", allowed) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _json_rows(path: Path, name: str) -> Iterator[WorkItem]:
    with path.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            if text.strip():
                yield _json_row(text, name, path, line)


def _json_row(text: str, name: str, path: Path, line: int) -> WorkItem:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad(
            path, line, f"is not JSON ({error.msg})", f"an object with {JSON_KEYS}"
        ) from None
    if not isinstance(row, dict):
        raise _bad(path, line, "is not an object", f"an object with {JSON_KEYS}")
    return WorkItem(
        arrival_s=_json_time_s(row.get("timestamp"), path, line),
        prompt_tokens=_length(row.get("input_length"), "input_length", path, line),
        output_tokens=_length(row.get("output_length"), "output_length", path, line),
        prompt=_json_prompt(row.get("prompt"), path, line),
        label=name,
        pieces=_json_blocks(row, path, line),
        line=line,
    )


def _json_time_s(value: Any, path: Path, line: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise _bad(path, line, f"timestamp is {value!r}", "milliseconds, 0 or more")
    return value / 1000


def _json_prompt(value: Any, path: Path, line: int) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise _bad(path, line, f"prompt is {value!r}", "text, or leave it out")
    return value


def _json_blocks(row: dict[str, Any], path: Path, line: int) -> tuple[Piece, ...]:
    """Equal hash_ids are equal blocks of HASH_BLOCK_TOKENS, the last one as long as is left."""
    value = row.get("hash_ids")
    hashes = [] if value is None else value
    if not isinstance(hashes, list) or not all(type(h) is int for h in hashes):
        raise _bad(
            path, line, "hash_ids is not a list of whole numbers", "[0, 1, 2] or leave it out"
        )
    return tuple(Piece(f"block {h}", HASH_BLOCK_TOKENS) for h in hashes)


def _length(value: Any, name: str, path: Path, line: int) -> int:
    """A count of tokens from a CSV field or a JSON number."""
    text = str(value).strip()
    whole = isinstance(value, int | str) and not isinstance(value, bool) and text.isdecimal()
    if not whole or int(text) < 1:
        raise _bad(path, line, f"{name} is {value!r}", "a whole number of tokens, 1 or more")
    return int(text)


def _bad(path: Path, line: int, what: str, allowed: str) -> UserError:
    return UserError(f"workload file {path}, line {line} {what}: use {allowed}")
