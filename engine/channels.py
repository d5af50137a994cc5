"""Three pipes between the engine process and its owner.

Control carries commands down and replies up; tokens and telemetry each have a pipe of their own,
so that a slow reader of one never holds up another. Pipes block at 64 KiB: only sender threads
write to them.
"""

from __future__ import annotations

import os
import pickle
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe

from engine import messages as m


@dataclass(frozen=True, slots=True)
class Channels:
    """One side's ends."""

    control: Connection
    tokens: Connection
    telemetry: Connection

    def descriptors(self) -> tuple[int, int, int]:
        """File descriptors, to be inherited by the engine process."""
        return self.control.fileno(), self.tokens.fileno(), self.telemetry.fileno()

    def close(self) -> None:
        for connection in (self.control, self.tokens, self.telemetry):
            connection.close()


def open_channels() -> tuple[Channels, Channels]:
    """The owner's ends and the engine's."""
    control, engine_control = Pipe(duplex=True)
    tokens, engine_tokens = Pipe(duplex=False)
    telemetry, engine_telemetry = Pipe(duplex=False)
    owner = Channels(control, tokens, telemetry)
    return owner, Channels(engine_control, engine_tokens, engine_telemetry)


def inherited_channels(descriptors: list[int]) -> Channels:
    """The engine's ends, from the numbers it was started with."""
    control, tokens, telemetry = descriptors
    return Channels(
        Connection(control),
        Connection(tokens, readable=False),
        Connection(telemetry, readable=False),
    )


class Outbox:
    """Sends pickled messages from a thread of its own: `put` never waits for the reader."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, message: object) -> None:
        self._queue.put(message)

    def close(self) -> None:
        """Send what is queued, then end."""
        self._queue.put(_END)
        self._thread.join()

    def _run(self) -> None:
        while (message := self._queue.get()) is not _END:
            try:
                self._connection.send_bytes(pickle.dumps(message))
            except OSError:
                return  # the owner is gone; the command reader ends this process


_END = object()


def receive_commands(
    connection: Connection, commands: queue.SimpleQueue[m.Command], gone: Callable[[], None]
) -> None:
    """Put commands on a queue until the other side closes; then call `gone`."""
    try:
        while True:
            commands.put(connection.recv())
    except (EOFError, OSError):
        gone()


def exit_at_once() -> None:
    """The owner has died: nobody waits for this process, and nobody would stop it."""
    os._exit(3)
