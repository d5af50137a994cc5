"""`stepscope whatif` in this process: what it prints, and its JSON."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from typing import Any

from app.cli import app


def said(*arguments: object) -> str:
    """What the command prints. Raises what it raises."""
    out = io.StringIO()
    with redirect_stdout(out):
        app(["whatif", *map(str, arguments)], standalone_mode=False)
    return out.getvalue()


def found(*arguments: object) -> dict[str, Any]:
    """The command's JSON."""
    answer: dict[str, Any] = json.loads(said(*arguments, "--json"))
    return answer
