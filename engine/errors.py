"""Errors for people: one line that says what is wrong, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. Shown as one line, exit code 2, no traceback."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an unknown name: it lists the known ones and the nearest."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return UserError(f"unknown {kind} '{name}': use one of {', '.join(names)}{hint}")
