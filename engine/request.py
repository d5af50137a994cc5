"""What a client asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import UserError


class RequestError(UserError):
    """A request that can never run; the message says what is wrong and what is allowed."""


MAX_TEMPERATURE = 100.0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens and when to stop. temperature 0 is greedy."""

    max_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise RequestError(f"max_tokens is {self.max_tokens}: use 1 or more")
        if not 0 <= self.temperature <= MAX_TEMPERATURE:
            raise RequestError(
                f"temperature is {self.temperature}: use 0 (greedy) to {MAX_TEMPERATURE:g}"
            )
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p is {self.top_p}: use more than 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt with its settings; arrived_ns is stamped where the request entered."""

    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    arrived_ns: int = 0
    label: str | None = None
