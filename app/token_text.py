"""Tokens as the pieces of text that they added, for a tokenizer that is at hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

# So many tokens before one decide how its bytes and spaces read.
_BEFORE = 4
_KEPT = 65_536
_BROKEN = "\N{REPLACEMENT CHARACTER}"


class Decodes(Protocol):
    """A tokenizer, as far as reading goes."""

    def decode(self, token_ids: list[int]) -> str: ...


class TokenText:
    """Calls give the text that each token of an output added; put together they are the output.

    A character whose bytes are spread over several tokens belongs to the last of them.
    """

    def __init__(self, decoder: Decodes) -> None:
        self.decoder = decoder
        self._text = lru_cache(maxsize=_KEPT)(self._decoded)

    def __call__(self, token_ids: Sequence[int]) -> list[str]:
        pieces: list[str] = []
        held = ""
        for i in range(len(token_ids)):
            before = tuple(token_ids[max(0, i - _BEFORE) : i])
            old, new = self._text(before), self._text((*before, token_ids[i]))
            held += new.rstrip(_BROKEN)[len(old.rstrip(_BROKEN)) :]
            whole = not new.endswith(_BROKEN) or i == len(token_ids) - 1
            pieces.append(held if whole else "")
            held = "" if whole else held
        return pieces

    def _decoded(self, token_ids: tuple[int, ...]) -> str:
        return self.decoder.decode(list(token_ids)) if token_ids else ""
