"""What the server process is told by the command line, through its environment."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from engine import messages as m
from engine.config import EngineConfig
from engine.threads import cores_beside_a_server

SERVE_VARIABLE = "STEPSCOPE_SERVE"


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """The engine, its load, and the file to record to (None: in memory)."""

    engine: EngineConfig
    load: m.Load | None = None
    db: str | None = None

    def to_environment(self) -> str:
        load = None if self.load is None else _as_dict(self.load)
        return json.dumps({"engine": self.engine.to_json(), "load": load, "db": self.db})

    @classmethod
    def from_environment(cls, text: str) -> ServeConfig:
        raw = json.loads(text)
        load = m.Load(**raw["load"]) if raw["load"] else None
        return cls(EngineConfig(**raw["engine"]), load, raw["db"])


def _as_dict(load: m.Load) -> dict[str, Any]:
    return {name: getattr(load, name) for name in load.__slots__}


def with_threads(engine: EngineConfig) -> EngineConfig:
    """As many threads as a server leaves free, unless someone says otherwise or none compute."""
    if engine.backend != "cpu" or engine.threads is not None:
        return engine
    return replace(engine, threads=cores_beside_a_server())


def default_cpu_config() -> EngineConfig:
    """An engine on this machine beside a server."""
    return with_threads(EngineConfig(live=True))


def default_serve_config() -> ServeConfig:
    """A live demo: cores - 1 threads, a moderate load, a recording in memory."""
    return ServeConfig(default_cpu_config(), m.Load("steady", concurrency=4), None)
