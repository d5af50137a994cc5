"""What eight viewers cost the engine, and how often each of them is told something new."""

from __future__ import annotations

import http.client
import selectors
import socket
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from engine.threads import available_cores
from telemetry.clock import NS_PER_S, now_ns
from tests.bench.live_demo import demo, rate
from tests.bench.live_pixel import spread
from tests.e2e.conftest import Server

MOST_SLOWER = 0.03
MOST_BETWEEN_S = 0.3
SETTLE_S = 2.0


# A comment of a stream, such as its first line, is shorter than this, a message longer; bytes.
_COMMENT = 100


@dataclass
class Viewer:
    """One event stream over plain HTTP: when each message of it had come, ns."""

    connection: socket.socket
    told_ns: list[int] = field(default_factory=list)
    _size: int = 0
    _last: bytes = b""

    def read(self) -> bool:
        """Takes what has come; False once the stream has ended."""
        text = self.connection.recv(1 << 20)
        *ended, rest = (self._last + text).split(b"\n\n")
        for part in ended:
            if self._size + len(part) > _COMMENT:
                self.told_ns.append(now_ns())
            self._size = 0
        self._size += len(rest)
        self._last = rest[-1:]
        return bool(text)


def measure(views: Sequence[str], viewers: int, rounds: int, each_s: float) -> dict[str, Any]:
    """Rounds without and with the viewers, in turn; views: what they watch, over and over."""
    threads = max(1, available_cores() - 1)
    load = ("--threads", str(threads), "--concurrency", "8")
    rates: dict[str, list[float]] = {"without": [], "with": []}
    between: list[float] = []
    with demo(load, steps=600) as server:
        for number in range(rounds):
            order = ("without", "with") if number % 2 == 0 else ("with", "without")
            for side in order:
                shown = [views[i % len(views)] for i in range(viewers if side == "with" else 0)]
                with watching(server, shown) as watchers:
                    rate(server, SETTLE_S)
                    began_ns = now_ns()
                    rates[side].append(rate(server, each_s))
                    between += _between_s(watchers, began_ns)
    return _told(rates, between) | {"threads": threads, "viewers": viewers, "views": list(views)}


def _told(rates: dict[str, list[float]], between: list[float]) -> dict[str, Any]:
    """slower: median over the rounds of how much lower the rate with viewers was."""
    pairs = zip(rates["without"], rates["with"], strict=True)
    slower = [1 - watched / alone for alone, watched in pairs]
    return {
        "steps_per_s": {side: spread(values) for side, values in rates.items()},
        "slower": statistics.median(slower),
        "slower_of_rounds": slower,
        "between_s": spread(between),
    }


def _between_s(watchers: list[Viewer], since_ns: int) -> list[float]:
    """Seconds from one message to the next, of all viewers."""
    made = []
    for watcher in watchers:
        told = [t for t in list(watcher.told_ns) if t >= since_ns]
        made += [(b - a) / NS_PER_S for a, b in pairwise(told)]
    return made


@contextmanager
def watching(server: Server, views: Sequence[str]) -> Iterator[list[Viewer]]:
    """A stream for each of these views, read by one thread as fast as they come."""
    opened = [_connect(server, view) for view in views]
    watchers = [Viewer(connection.sock) for connection in opened]
    ended = threading.Event()
    reader = threading.Thread(target=_read, args=(watchers, ended))
    reader.start()
    try:
        yield watchers
    finally:
        ended.set()
        reader.join()
        for connection in opened:
            connection.close()


def _connect(server: Server, view: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", f"/stepscope/view/{view}?look=light")
    return connection


def _read(watchers: list[Viewer], ended: threading.Event) -> None:
    with selectors.DefaultSelector() as ready:
        for watcher in watchers:
            ready.register(watcher.connection, selectors.EVENT_READ, watcher)
        while not ended.is_set():
            for key, _ in ready.select(0.1):
                if not key.data.read():
                    ready.unregister(key.fileobj)
