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
    """Sends pickled lists of messages from a thread of its own: `put` never waits for the reader.

    What has come while the last list was sent goes in the next one. gather_s: wait so long for
    more before sending, where nobody waits for the first of them.
    """

    def __init__(self, connection: Connection, name: str, gather_s: float = 0.0) -> None:
        self._connection, self._gather_s = connection, gather_s
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, message: object) -> None:
        self._queue.put(message)

    def close(self) -> None:
        """Send what is queued, then end."""
        self._queue.put(_END)
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            messages = self._take()
            ended = messages[-1] is _END
            try:
                self._connection.send_bytes(pickle.dumps(messages[: len(messages) - ended]))
            except OSError:
                return  # the owner is gone; the command reader ends this process

    def _take(self) -> list[object]:
        """Wait for one message, then take those that are there."""
        messages = [self._queue.get()]
        if self._gather_s:
            self._closing.wait(self._gather_s)
        while messages[-1] is not _END and len(messages) < _MOST_AT_ONCE:
            try:
                messages.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return messages


_MOST_AT_ONCE = 1024
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
