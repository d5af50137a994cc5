"""`stepscope demo`: hand the settings to the server process and become it."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
from platformdirs import user_data_path

from app.serve_config import SERVE_VARIABLE, ServeConfig, with_threads
from engine.config import EngineConfig
from engine.errors import UserError
from engine.memory import check_kv_size
from engine.messages import Load
from engine.modelled_setup import modelled_setup
from engine.models.names import DEFAULT_MODEL
from engine.workloads import check_load
from telemetry.store import Store

_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Demo:
    """What the command line asked for."""

    engine: EngineConfig
    load: Load
    db: Path | None
    port: int


def run_demo(demo: Demo) -> None:
    """Does not return: the process becomes the server. Raises UserError for bad input."""
    check_load(demo.load.workload, demo.load.concurrency, demo.load.rate, demo.load.requests)
    _check_port(demo.port)
    _check_model(demo.engine)
    db = _default_db() if demo.db is None else demo.db
    Store(db).close()  # a database that cannot be used is an error here, not in the browser
    config = ServeConfig(with_threads(demo.engine), demo.load, str(db))
    os.environ[SERVE_VARIABLE] = config.to_environment()
    print(f"Stepscope: http://{_ADDRESS}:{demo.port}  (recording to {db}; Ctrl-C ends it)")
    sys.stdout.flush()
    os.execv(sys.executable, _server_command(demo.port))


def _server_command(port: int) -> list[str]:
    entry = Path(__file__).with_name("main.py")
    options = {
        "server.address": _ADDRESS,
        "server.port": str(port),
        "server.headless": "true",
        "server.showEmailPrompt": "false",
        "browser.gatherUsageStats": "false",
        # A full collection after every fragment run would hold the GIL and the page.
        "runner.postScriptGC": "false",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    return [sys.executable, "-m", "streamlit", "run", str(entry), *flags]


def _check_port(port: int) -> None:
    if not 1 <= port <= 65535:
        raise UserError(f"port is {port}: use 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_ADDRESS, port))
        except OSError:
            raise UserError(
                f"port {port} is in use: end what listens there, or choose another with --port"
            ) from None


def _check_model(config: EngineConfig) -> None:
    """What cannot be read or cannot fit is an error here, not in the browser."""
    if config.modelled:
        modelled_setup(config)
        return
    if config.backend == "cuda":
        from engine.cuda_device import cuda_device

        cuda_device()  # what fits beside whoever else uses it, the engine says
        return
    # The default model needs no second spent on torch before the page opens.
    if config.model != DEFAULT_MODEL or config.kv_blocks is not None:
        from engine.models.loader import open_model

        spec = open_model(config.model).config.spec()
        check_kv_size(config, spec, psutil.virtual_memory().available)


def _default_db() -> Path:
    folder = user_data_path("stepscope", appauthor=False, ensure_exists=True)
    return folder / "stepscope.duckdb"
