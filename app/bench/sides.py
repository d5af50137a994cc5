"""Starting our side and the peers', each in its own process and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from app.bench.environments import environment_of, llama_program, python_of, script_of
from app.bench.keeper import Keeper
from app.bench.options import BenchOptions
from app.bench.side import Side
from app.bench.weights import gguf_file, hf_folder
from engine.huge_pages import with_huge_pages


@dataclass(slots=True)
class Sides:
    """kept: a folder for recordings; peers: the folder of their environments."""

    options: BenchOptions
    kept: Path
    peers: Path | None
    _files: count[int] = field(default_factory=count)

    @contextmanager
    def ours(self, dtype: str) -> Iterator[Side]:
        """Our engine, ready, with its records kept in a file. Raises UserError."""
        keeper = Keeper(self.kept / f"{next(self._files)}.duckdb")
        options = {
            "model": self.options.model,
            "dtype": dtype,
            "threads": self.options.cores,
            "telemetry_fd": keeper.fd,
        }
        command = [sys.executable, "-m", "app.bench.worker"]
        environment = with_huge_pages(os.environ)
        side = Side("stepscope", command, options, environment, pass_fds=(keeper.fd,))
        keeper.start()
        try:
            side.ready()
            yield side
            side.ask("finish")
        finally:
            side.close()
            keeper.close()

    @contextmanager
    def peer(self, name: str, ours: Side) -> Iterator[Side]:
        """A peer on the weights and in the dtype of ours, ready."""
        python = python_of(name, self.peers)
        options = {
            "model": str(self._weights(name, ours)),
            "dtype": ours.facts["dtype"],
            "threads": self.options.cores,
            "max_context": ours.facts["max_context"],
        }
        environment = environment_of(name, python, self.options.cores)
        side = Side(name, [str(python), str(script_of(name))], options, environment)
        try:
            side.ready()
            yield side
        finally:
            side.close()

    def _weights(self, name: str, ours: Side) -> Path:
        source, dtype = Path(ours.facts["source"]), str(ours.facts["dtype"])
        if name != "llama.cpp":
            return hf_folder(source, dtype)
        return gguf_file(source, dtype, llama_program("llama-quantize", self.peers))
