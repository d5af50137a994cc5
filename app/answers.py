"""People's prompts and the text that comes back, token by token."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from engine import messages as m
from engine.detokenizer import Detokenizer


@dataclass(slots=True)
class Answer:
    """A person's prompt and what the model has said so far."""

    prompt: str
    text: str = ""
    done: bool = False
    reason: str | None = None
    request_id: int | None = None
    error: str | None = None
    cancelled: bool = False


class Decoder:
    """The model's tokenizer, from what the engine sent: no model file is read here."""

    def __init__(self, tokenizer_json: str) -> None:
        from tokenizers import Tokenizer

        self._fast = Tokenizer.from_str(tokenizer_json)

    def decode(self, token_ids: list[int]) -> str:
        text: str = self._fast.decode(token_ids, skip_special_tokens=True)
        return text


@dataclass(slots=True)
class Texts:
    """Text of people's prompts as it grows. Guarded by the session's lock.

    Tokens travel on another pipe than the reply that names the request, and may be first.
    """

    decoder: Decoder | None = None
    _stops: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _tickets: dict[int, str] = field(default_factory=dict)
    _texts: dict[str, Detokenizer] = field(default_factory=dict)
    _early: deque[m.TokenMessage] = field(default_factory=lambda: deque(maxlen=1000))
    _finished: list[tuple[str, str]] = field(default_factory=list)

    def expect(self, ticket: str, stop: tuple[str, ...]) -> None:
        self._stops[ticket] = stop

    def accepted(self, ticket: str, request_id: int) -> None:
        assert self.decoder is not None
        self._tickets[request_id] = ticket
        self._texts[ticket] = Detokenizer(self.decoder, self._stops.pop(ticket))
        for message in self._early:
            self._take(message, {request_id})
        if not self._stops:
            self._early.clear()

    def refused(self, ticket: str) -> None:
        self._stops.pop(ticket, None)

    def heard(self, message: m.TokenMessage) -> None:
        if self._stops:
            self._early.append(message)
        self._take(message, self._tickets.keys())

    def _take(self, message: m.TokenMessage, wanted: Collection[int]) -> None:
        if not wanted:
            return
        for request_id, token in zip(message.request_ids, message.token_ids, strict=True):
            if request_id in wanted:
                self._texts[self._tickets[request_id]].add([token])
        for request_id, reason in message.finished:
            if request_id in wanted:
                self._finished.append((self._tickets.pop(request_id), reason))

    def take_finished(self) -> list[tuple[str, str]]:
        finished, self._finished = self._finished, []
        return finished

    def text(self, ticket: str) -> str:
        """What has been said so far; nothing yet for one that was not accepted."""
        found = self._texts.get(ticket)
        return "" if found is None else found.text

    def take_text(self, ticket: str) -> str:
        """The whole text of one that has finished; forgotten here."""
        found = self._texts.pop(ticket, None)
        return "" if found is None else found.text
