"""One side of a bench: a process that takes commands and answers, as JSON lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.errors import EngineFailedError
from engine.errors import UserError
from telemetry.clock import now_ns

END_WAIT_S = 20
_TAIL_LINES = 3


class Side:
    """Started at once; `ready` waits for it. Its standard error goes to a file, told on failure."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        options: Mapping[str, Any],
        environment: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.started_ns = now_ns()
        self._errors = tempfile.TemporaryFile(  # noqa: SIM115  (open until close)
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(
            [*command, json.dumps(dict(options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=dict(environment),
            pass_fds=pass_fds,
            start_new_session=True,  # so that its own children end with it
        )
        self.facts: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> dict[str, Any]:
        """What it tells of itself, once it has started. Raises UserError or EngineFailedError."""
        if not self.facts:
            self.facts = dict(self._answer()["ready"])
        return self.facts

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The answer to one command. Raises UserError or EngineFailedError."""
        self.ready()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise UserError(answer["refused"])
        if "error" in answer:
            raise EngineFailedError(f"{self.name} failed: {answer['error']}")
        return answer

    def _ended(self) -> EngineFailedError:
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        told = " / ".join(lines[-_TAIL_LINES:]) or "it said nothing"
        return EngineFailedError(f"{self.name} ended with exit code {code}: {told}")

    def close(self) -> None:
        """End it and all that it started."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_WAIT_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            self._kill_group()
            self._process.wait()
            self._errors.close()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):  # all of it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
