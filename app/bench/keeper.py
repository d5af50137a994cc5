"""Keeps the records of our side while it is measured, as the product does: in this process."""

from __future__ import annotations

import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from telemetry.envelope import decode_envelope
from telemetry.store import Store


class Keeper:
    """A store in a file, fed by a pipe: `fd` is the end that the engine's process gets."""

    def __init__(self, path: Path) -> None:
        self._store = Store(path)
        ours, self.fd = os.pipe()
        self._pipe = Connection(ours, writable=False)
        self._thread = threading.Thread(target=self._read, name="keeper", daemon=True)

    def start(self) -> None:
        """Once the engine's process has its end; this process closes its own copy."""
        os.close(self.fd)
        self._thread.start()

    def _read(self) -> None:
        try:
            run_id = self._store.start_run(self._pipe.recv())
            while True:
                self._store.append(run_id, decode_envelope(self._pipe.recv_bytes()).tables)
        except EOFError:
            pass  # the engine's process has ended

    def close(self) -> None:
        """Raises StoreError where a record could not be kept."""
        self._thread.join()
        self._pipe.close()
        self._store.close()
