"""JSON files that somebody else wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import UserError


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises UserError if it is damaged or something else."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); fetch it again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a JSON object; fetch it again")
    return content
