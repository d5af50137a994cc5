"""Running the installed command as a person does: as a process of its own."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Command:
    """The command in a folder of its own."""

    program: Path
    folder: Path

    def run(self, *arguments: object, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *map(str, arguments)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def refuses(self, *arguments: object) -> str:
        """The one line that says why; nothing in the folder may have changed."""
        before = _content(self.folder)
        ended = self.run(*arguments)
        lines = ended.stderr.splitlines()
        if ended.returncode != 2 or len(lines) != 1 or ended.stdout:
            pytest.fail(f"exit {ended.returncode}, stderr:\n{ended.stderr}stdout:\n{ended.stdout}")
        assert lines[0].startswith("stepscope: ")
        assert _content(self.folder) == before, "a refused command changed files"
        return lines[0]


def _content(folder: Path) -> dict[Path, bytes | None]:
    return {p: p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
