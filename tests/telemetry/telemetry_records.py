"""Records to test with: made by hand, or any that the schema allows."""

from __future__ import annotations

import types
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from telemetry.schema import TABLES, Col, EventRecord, RequestRecord, RunRecord, StepRecord

WALL = datetime(2026, 7, 28, 14, 2, 33, 417_250, tzinfo=UTC)
_INTEGERS = {"SMALLINT": 15, "INTEGER": 31, "BIGINT": 62}


def a_run(**changes: Any) -> RunRecord:
    values: dict[str, Any] = {
        "started_wall": WALL,
        "started_ns": 1_000,
        "clock": "real",
        "source": "embedded",
        "model": "SmolLM2-135M-Instruct",
        "device": "CPU, 2 threads",
        "backend": "cpu",
        "dtype": "fp32",
        "kv_dtype": "fp32",
        "peak_flops": None,
        "peak_bandwidth": None,
        "peaks_source": None,
        "ttft_slo_s": None,
        "tpot_slo_s": None,
        "config": "{}",
    }
    return RunRecord(**{**values, **changes})


def _zero(col: Col) -> Any:
    if col.sql.startswith("ENUM"):
        return col.sql.split("'")[1]
    return {"DOUBLE": 0.0, "VARCHAR": "continuous"}.get(col.sql, 0)


def a_step(step: int, **changes: Any) -> StepRecord:
    """A step of zeros, with what the test is about."""
    values = {name: _zero(col) for name, (col, _) in described("steps").items()}
    return StepRecord(**{**values, "step": step, **changes})


def a_request(request_id: int, **changes: Any) -> RequestRecord:
    values: dict[str, Any] = {
        "arrived_ns": 0,
        "admitted_ns": None,
        "first_token_ns": None,
        "finished_ns": None,
        "prompt_tokens": 4,
        "cached_tokens": 0,
        "output_tokens": 0,
        "finish_reason": None,
        "preemptions": 0,
        "label": None,
    }
    return RequestRecord(request_id, **{**values, **changes})


def an_event(t_ns: int, kind: str, detail: str = "{}") -> EventRecord:
    return EventRecord(t_ns, None, kind, detail)


@dataclass
class Message:
    """Looks like engine.messages.TokenMessage."""

    step: int
    t_ns: int
    request_ids: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


@dataclass
class Sequences:
    """Looks like engine.sink.SequenceSteps; count rows that tell themselves apart."""

    request_id: list[int]
    slot: list[int]
    phase: list[str]
    tokens: list[int]
    emitted_tokens: list[int]
    context_tokens: list[int]
    computed_context_tokens: list[int]


def sequences(count: int) -> Sequences:
    rows = list(range(count))
    return Sequences(rows, rows, ["decode"] * count, [1] * count, [1] * count, rows, rows)


def described(table: str) -> dict[str, tuple[Col, bool]]:
    """Per column its declaration and whether it may be None."""
    hints = get_type_hints(TABLES[table], include_extras=True)
    found = {}
    for f in fields(TABLES[table]):
        kind, col = get_args(hints[f.name])
        found[f.name] = (col, isinstance(kind, types.UnionType))
    return found


def _values(col: Col, optional: bool) -> st.SearchStrategy[Any]:
    values: st.SearchStrategy[Any]
    if col.sql in _INTEGERS:
        limit = 2 ** _INTEGERS[col.sql]
        values = st.integers(-limit, limit - 1)
    elif col.sql == "DOUBLE":
        values = st.floats(allow_nan=False)
    elif col.sql.startswith("ENUM"):
        values = st.sampled_from(col.sql.split("'")[1::2])
    elif col.sql == "JSON":
        values = st.sampled_from(["{}", '{"rows": 3}', '{"text": "grün, 語"}'])
    elif col.sql == "TIMESTAMP":
        values = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
    else:
        values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
    return st.none() | values if optional else values


def any_record(table: str) -> st.SearchStrategy[Any]:
    """Any record of a table that its schema allows."""
    columns = {name: _values(*what) for name, what in described(table).items()}
    return st.builds(TABLES[table], **columns)
