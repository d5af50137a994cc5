"""What a step may hold; checked where a number enters."""

from __future__ import annotations

from engine.errors import UserError

MAX_BATCH = 1024
MAX_CHUNK_TOKENS = 65536
DEFAULT_CHUNK_TOKENS = 256


def check_max_batch(max_batch: int) -> None:
    """Raise UserError unless so many slots can be offered."""
    if not 1 <= max_batch <= MAX_BATCH:
        raise UserError(f"max batch is {max_batch}: use 1 to {MAX_BATCH}")


def check_chunk_tokens(tokens: int) -> None:
    """Raise UserError unless a step can have that token budget."""
    if not 1 <= tokens <= MAX_CHUNK_TOKENS:
        raise UserError(f"token budget is {tokens}: use 1 to {MAX_CHUNK_TOKENS} tokens a step")
