"""Token budget and KV blocks as text that people choose or type."""

from __future__ import annotations

import re

BUDGETS = (16, 32, 64, 128, 256, 512, 1024, 2048)
SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)  # of the KV cache


class AmountError(ValueError):
    """Text that names no amount; the message says what does."""


def budget_text(tokens: int) -> str:
    """A token budget as its control shows it."""
    return f"budget {tokens:,}"


def blocks_text(blocks: int) -> str:
    """A number of KV blocks as its control shows it."""
    return f"KV {blocks:,}"


def budget_choices(actual: int) -> list[str]:
    """Budgets to choose from, the engine's own among them."""
    return [budget_text(n) for n in sorted({*BUDGETS, actual})]


def blocks_choices(capacity: int, actual: int) -> list[str]:
    """Shares of the cache in blocks, the largest first, the engine's own among them."""
    shares = {max(1, int(capacity * share)) for share in SHARES}
    return [blocks_text(n) for n in sorted({*shares, actual}, reverse=True)]


def parse_budget(text: str) -> int:
    """ "budget 64", "64", "1,024 tokens". Raises AmountError."""
    found = re.fullmatch(r"(?:budget)?\s*([\d,]+)\s*(?:tokens?)?", text.strip().lower())
    if not found or not _whole(found[1]):
        raise AmountError(f'"{text}" is no token budget: write a number of tokens, such as 64')
    return _whole(found[1])


def parse_blocks(text: str, capacity: int) -> int:
    """ "KV 512", "512 blocks", or "25%" of the capacity. Raises AmountError."""
    words = text.strip().lower()
    share = re.fullmatch(r"(\d*\.?\d+)\s*%", words)
    found = re.fullmatch(r"(?:kv)?\s*([\d,]+)\s*(?:blocks?)?", words)
    blocks = int(capacity * float(share[1]) / 100) if share else _whole(found[1]) if found else 0
    if not 1 <= blocks <= capacity:
        raise AmountError(
            f'"{text}" is no number of KV blocks: write 1 to {capacity:,}, or a share such as 25%'
        )
    return blocks


def _whole(digits: str) -> int:
    """0 where there is no number."""
    plain = digits.replace(",", "")
    return int(plain) if plain else 0
