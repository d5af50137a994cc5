"""Prompts of an exact number of tokens, cut from the texts in data/prompts."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from engine.workloads.workload import Piece, WorkItem, item_rng

_DATA = Path(__file__).resolve().parents[2] / "data"
FOLDER = _DATA / "prompts"
SYSTEM_PROMPT = _DATA / "workloads" / "chat_system_prompt.txt"


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
        return _cut(self._tokens, rng.randrange(len(self._tokens)), tokens)

    def for_item(self, item: WorkItem, seed: int, k: int) -> tuple[int, ...]:
        """Prompt of item k: its own text, its pieces, or a cut that seed and k decide."""
        if item.prompt is not None:
            return self._encoded(item.prompt)
        if item.pieces:
            return self._from_pieces(item, seed)
        return self.cut(item.prompt_tokens, item_rng(seed, "prompt", k))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._encoder.encode(text))

    def _from_pieces(self, item: WorkItem, seed: int) -> tuple[int, ...]:
        tokens: list[int] = []
        for piece in item.pieces:
            tokens += self._piece(piece, seed)
        missing = item.prompt_tokens - len(tokens)
        if missing > 0:
            tokens += self._piece(Piece(f"after {item.pieces[-1].name}", missing), seed)
        return tuple(tokens[: item.prompt_tokens])

    def _piece(self, piece: Piece, seed: int) -> tuple[int, ...]:
        """Equal names give equal text, so that prompts share their beginnings."""
        if piece.name == "system":
            text = self._encoded(SYSTEM_PROMPT.read_text(encoding="utf-8"))
            return _cut(list(text), 0, piece.tokens)
        return self.cut(piece.tokens, item_rng(seed, piece.name, 0))


def _cut(text: list[int], start: int, tokens: int) -> tuple[int, ...]:
    taken = text[start : start + tokens]
    while len(taken) < tokens:
        taken += text[: tokens - len(taken)]
    return tuple(taken)
