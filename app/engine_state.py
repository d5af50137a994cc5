"""Whether controls show the engine as it is: they are drawn again once it has changed."""

from __future__ import annotations

import hashlib

from app import state
from app.race import races


def fingerprint() -> str:
    """Changes with all that controls show of the engine: phase, settings, refusals, a race."""
    current = state.session()
    if current is None:
        said: tuple[object, ...] = (state.failure(),)
    else:
        # Which of them, not what it says: a second one of the same words is told as well.
        refused = id(current.rejections[-1]) if current.rejections else None
        known = current.ready is not None
        said = (current.phase, current.run_id, known, current.status, state.failure(), refused)
    raced = races()
    return hashlib.sha256(repr((said, raced.running, raced.holds)).encode()).hexdigest()[:12]
