"""Commands as JSON lines in, results as JSON lines out: what every side of a bench does.

Runs under each peer's own interpreter, so it needs the standard library only.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

Command = Callable[..., dict[str, Any]]


def load_clock() -> ModuleType:
    """Stepscope's clock, by its path: its folder is not importable here."""
    path = Path(__file__).resolve().parents[3] / "telemetry" / "clock.py"
    spec = importlib.util.spec_from_file_location("stepscope_clock", path)
    assert spec is not None
    assert spec.loader is not None
    clock = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(clock)
    return clock


def serve(start: Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, Command]]]) -> None:
    """start(options) -> (facts, commands): told once, then asked until the input ends.

    options is the JSON object in the first argument. Every line of input names a `command` and
    holds its arguments; an error is answered as {"error": …} and ends the side.
    """
    out = _private_output()
    try:
        facts, commands = start(json.loads(sys.argv[1]))
        _say(out, {"ready": facts})
        for line in sys.stdin:
            asked = json.loads(line)
            _say(out, commands[asked.pop("command")](**asked))
    except Exception as error:
        kind = "refused" if type(error).__name__ in ("UserError", "RequestError") else "error"
        detail = str(error) if kind == "refused" else f"{type(error).__name__}: {error}"
        _say(out, {kind: detail})
        raise


def _private_output() -> TextIO:
    """Standard output for results alone: what libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


def _say(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()
