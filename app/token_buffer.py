"""Tokens between the engine's messages and the store."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from engine import messages as m
from telemetry.clock import NS_PER_S, now_ns
from telemetry.inserts import Tables
from telemetry.recorder import token_table

_TOKENS_EVERY_NS = 3 * NS_PER_S  # more than any telemetry envelope waits


class TokenBuffer:
    """Token messages on their way into the `tokens` table.

    They go with the next telemetry envelope, or alone where none comes for a while.
    """

    def __init__(self, record: Callable[[Tables], None]) -> None:
        self._record = record
        self._lock = threading.Lock()
        self._messages: list[m.TokenMessage] = []
        self._last_ns = 0

    def add(self, messages: list[m.TokenMessage]) -> None:
        with self._lock:
            self._messages += messages
            due = now_ns() - self._last_ns > _TOKENS_EVERY_NS
        if due:
            self.flush()

    def flush(self) -> None:
        tables = self.take()
        if tables:
            self._record(tables)

    def take(self) -> dict[str, pa.Table]:
        """What has come since the last time, as rows; empty when nothing has."""
        with self._lock:
            messages, self._messages = self._messages, []
            self._last_ns = now_ns()
        if not any(message.token_ids for message in messages):
            return {}
        return {"tokens": token_table(messages)}
