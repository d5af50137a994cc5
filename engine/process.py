"""The engine process from outside: start it, command it, hear from it, end it. No torch here."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from engine import messages as m
from engine.channels import Channels, open_channels
from engine.huge_pages import with_huge_pages

_END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Listener:
    """Called from the client's reader threads, one thread a channel.

    tokens: one message a step, in order, some at a time. closed: once, after the last reply,
    whatever ended the engine.
    """

    reply: Callable[[m.Reply], None]
    tokens: Callable[[list[m.TokenMessage]], None]
    telemetry: Callable[[bytes], None]
    closed: Callable[[], None]


class EngineClient:
    """Owns one engine process, started as `python -m <module> <descriptors>`.

    It is a fresh interpreter rather than a multiprocessing child, so that it never imports its
    owner's main module (streamlit in the server's case).
    """

    def __init__(self, start: m.Start, listener: Listener, module: str) -> None:
        ours, theirs = open_channels()
        self._channels, self._listener = ours, listener
        self._lock = threading.Lock()
        self.closing = False  # it ends because it was told to
        descriptors = theirs.descriptors()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C goes to the owner, which ends the engine in order
            env=with_huge_pages(os.environ)
            | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        theirs.close()
        self._channels.control.send(start)
        self._threads = self._start_readers(ours)

    def _start_readers(self, channels: Channels) -> list[threading.Thread]:
        listener = self._listener

        def hear_replies(payload: bytes) -> None:
            for reply in pickle.loads(payload):
                listener.reply(reply)

        targets: list[tuple[str, Connection, Callable[[bytes], None], Callable[[], None]]] = [
            ("replies", channels.control, hear_replies, listener.closed),
            ("tokens", channels.tokens, lambda b: listener.tokens(pickle.loads(b)), _nothing),
            ("telemetry", channels.telemetry, listener.telemetry, _nothing),
        ]
        threads = [
            threading.Thread(target=_read, args=(c, on, end), name=f"engine-{name}", daemon=True)
            for name, c, on, end in targets
        ]
        for thread in threads:
            thread.start()
        return threads

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def send(self, command: m.Command) -> None:
        """Raises OSError if the engine has ended."""
        with self._lock:
            self._channels.control.send(command)

    def drain(self) -> None:
        """Wait until the engine has ended and everything it sent was heard."""
        self._process.wait()
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """End the engine: ask, then kill. Everything it had sent is heard first."""
        self.closing = True
        try:
            self.send(m.Shutdown())
            self._process.wait(_END_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
        self.drain()
        self._channels.close()


def _read(
    connection: Connection, heard: Callable[[bytes], None], closed: Callable[[], None]
) -> None:
    try:
        while True:
            heard(connection.recv_bytes())
    except (EOFError, OSError):
        return
    finally:
        closed()


def _nothing() -> None:
    """Nobody waits for the end of this channel."""
