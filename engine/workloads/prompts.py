"""Prompts of an exact number of tokens, cut from the texts in data/prompts."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from engine.workloads.workload import WorkItem, item_rng

FOLDER = Path(__file__).resolve().parents[2] / "data" / "prompts"
HASH_BLOCK_TOKENS = 512  # of Mooncake's hash_ids (Qin et al., FAST 2025)


class Encoder(Protocol):
    """Anything that turns text into token ids."""

    def encode(self, text: str) -> list[int]: ...


class PromptSource:
    """Texts tokenised once, from which prompts of any length are cut."""

    def __init__(self, encoder: Encoder, folder: Path = FOLDER) -> None:
        """ValueError where the folder holds no text."""
        texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]
        self._encoder = encoder
        self._tokens = encoder.encode("\n\n".join(texts)) if texts else []
        if not self._tokens:
            raise ValueError(f"{folder} holds no .txt files to cut prompts from")
        self._encoded = lru_cache(maxsize=1024)(self._encode)

    def __len__(self) -> int:
        """Tokens of all texts."""
        return len(self._tokens)

    def cut(self, tokens: int, rng: random.Random) -> tuple[int, ...]:
        """Exactly `tokens` tokens from a random place on; the texts repeat past their end."""
        start = rng.randrange(len(self._tokens))
        taken = self._tokens[start : start + tokens]
        while len(taken) < tokens:
            taken += self._tokens[: tokens - len(taken)]
        return tuple(taken)

    def for_item(self, item: WorkItem, seed: int, k: int) -> tuple[int, ...]:
        """Prompt of item k: its own text, its shared blocks, or a piece that seed and k decide."""
        if item.prompt is not None:
            return self._encoded(item.prompt)
        if item.hash_ids:
            return self._from_blocks(item, seed)
        return self.cut(item.prompt_tokens, item_rng(seed, "prompt", k))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._encoder.encode(text))

    def _from_blocks(self, item: WorkItem, seed: int) -> tuple[int, ...]:
        """Equal ids give equal blocks, so that requests share prefixes as recorded."""
        tokens: list[int] = []
        for block in item.hash_ids:
            tokens += self.cut(HASH_BLOCK_TOKENS, item_rng(seed, "block", block))
        missing = item.prompt_tokens - len(tokens)
        if missing > 0:
            tokens += self.cut(missing, item_rng(seed, "block after", item.hash_ids[-1]))
        return tuple(tokens[: item.prompt_tokens])
