"""Errors for people: one line that says what is wrong, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. Shown as one line, exit code 2, no traceback."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an unknown name: it lists the known ones and the nearest."""
    names = sorted(known)
    near = " or ".join(f"'{known}'" for known in _nearest(name.lower(), names))
    hint = f"; did you mean {near}?" if near else ""
    return UserError(f"unknown {kind} '{name}': use one of {', '.join(names)}{hint}")


def _nearest(name: str, names: list[str]) -> list[str]:
    """Up to three that begin with it (h100: h100-pcie, h100-sxm), else the one most alike."""
    longer = [known for known in names if name and known.startswith(name)][:3]
    return longer or difflib.get_close_matches(name, names, n=1)
