"""Text of a growing list of tokens, safe to show while it grows. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class _Decoder(Protocol):
    def decode(self, token_ids: list[int]) -> str: ...


class Detokenizer:
    """Adds tokens, returns text; holds back a cut UTF-8 character; ends before a stop string."""

    # Text is settled every few tokens; decoding starts that many earlier, since some tokenizers
    # treat the first piece of a text differently (they drop its leading space).
    _TAIL = 8

    def __init__(self, decoder: _Decoder, stop: Sequence[str] = ()) -> None:
        self._decoder = decoder
        self._stop = tuple(s for s in stop if s)
        self._ids: list[int] = []
        self._context = 0  # first id that is still decoded
        self._context_text = ""  # what ids[_context:_settled] decode to; already in _text
        self._settled = 0
        self._text = ""
        self._pending = ""
        self.stopped = False

    @property
    def text(self) -> str:
        return self._text + self._pending

    def add(self, token_ids: Sequence[int]) -> None:
        """Take more tokens; nothing is added once a stop string was met."""
        for token in token_ids:
            if self.stopped:
                return
            self._add_one(token)

    def _add_one(self, token: int) -> None:
        self._ids.append(token)
        whole = self._decoder.decode(self._ids[self._context :])
        piece = whole[len(self._context_text) :]
        cut = piece.endswith("\ufffd")
        self._pending = piece.rstrip("\ufffd") if cut else piece
        if not cut and len(self._ids) - self._settled >= self._TAIL:
            self._settle()
        self._cut_at_stop()

    def _settle(self) -> None:
        self._text += self._pending
        self._pending = ""
        self._context, self._settled = self._settled, len(self._ids)
        self._context_text = self._decoder.decode(self._ids[self._context :])

    def _cut_at_stop(self) -> None:
        text = self.text
        places = [at for s in self._stop if (at := text.find(s)) >= 0]
        if places:
            self._text, self._pending, self.stopped = text[: min(places)], "", True
