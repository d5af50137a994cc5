"""The typed channel between the engine process and its owner. No torch here.

Commands travel down; replies, tokens and telemetry envelopes travel up, each on a pipe of its own.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from engine.config import EngineConfig
from engine.request import Request

# --- commands (owner -> engine); each takes effect between two steps ---


@dataclass(frozen=True, slots=True)
class Submit:
    """Answered by Accepted or Refused with the same ticket."""

    ticket: str
    request: Request


@dataclass(frozen=True, slots=True)
class SubmitText:
    """A person's prompt: the engine applies the chat template. Answered like Submit."""

    ticket: str
    text: str
    arrived_ns: int
    max_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inject:
    """A synthetic prompt of so many tokens, labelled 'inject': what does it do to those that run?

    An `inject` event names its request; one that can never run is Rejected.
    """

    prompt_tokens: int
    arrived_ns: int
    max_tokens: int = 8


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a request; no answer when it has ended already."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Configure:
    """Change what is not None. chunk_tokens: token budget of a step; kv_blocks: those offered."""

    scheduler: str | None = None
    max_batch: int | None = None
    chunk_tokens: int | None = None
    prefix_cache: bool | None = None
    kv_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The generated load from now on. concurrency: closed loop; rate: open, requests/s.

    Neither: the workload's own arrivals. requests None: endless.
    """

    workload: str
    concurrency: int | None = None
    rate: float | None = None
    requests: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class StopLoad:
    """No more generated requests; those in the engine go on."""


@dataclass(frozen=True, slots=True)
class Pause:
    """No step and no arrival until Resume; the load's clock stands still."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on after Pause; steps asked for and not yet run are dropped."""


@dataclass(frozen=True, slots=True)
class StepOnce:
    """One step while paused."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An event of the owner's own, between the commands before and after it, on the engine's clock.

    detail: what JSON can hold.
    """

    kind: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End after the current step, with everything recorded sent."""


Command = (
    Submit
    | SubmitText
    | Inject
    | Cancel
    | Configure
    | Load
    | StopLoad
    | Pause
    | Resume
    | StepOnce
    | Mark
    | Shutdown
)


@dataclass(frozen=True, slots=True)
class Start:
    """The first message: what engine to build, and the load that runs from the start."""

    config: EngineConfig
    load: Load | None = None


# --- replies (engine -> owner) ---


@dataclass(frozen=True, slots=True)
class Progress:
    """Loading or calibrating; fraction in 0..1, None when unknown."""

    stage: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine serves. `run` holds the fields of telemetry.schema.RunRecord."""

    run: dict[str, Any]
    tokenizer_json: str
    eos_token_ids: tuple[int, ...]
    model: dict[str, Any]  # params, weight_bytes, layers, hidden, heads, kv_heads, head_dim, …
    limits: dict[str, int]  # max_context, block_size, max_batch, kv_blocks, kv_blocks_capacity
    schedulers: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine cannot go on; message is one line for a person."""

    message: str
    user_error: bool


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request waits or runs under this id."""

    ticket: str
    request_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The request can never run; message is one line for a person."""

    ticket: str
    message: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A command other than a submit that could not be taken; nothing changed."""

    command: str
    message: str


@dataclass(frozen=True, slots=True)
class Status:
    """The engine's settings, sent whenever they change."""

    scheduler: str
    max_batch: int
    chunk_tokens: int
    prefix_cache: bool
    kv_blocks: int  # offered now
    paused: bool
    load: Load | None


@dataclass(frozen=True, slots=True)
class LoadDone:
    """A bounded load has finished: all its requests have ended."""

    requests: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How a paced modelled clock keeps up, once a second while it runs.

    lag_s: how far it is behind real time now. behind: by which share of the last seconds it fell
    behind, 0 where it kept up.
    """

    lag_s: float
    behind: float


Reply = Progress | Ready | Failed | Accepted | Refused | Rejected | Status | LoadDone | Pace


@dataclass(frozen=True, slots=True)
class TokenMessage:
    """All tokens of one step, never dropped. finished: (request_id, reason).

    The columns are arrays, which travel as one piece of bytes each.
    """

    step: int
    t_ns: int
    request_ids: array[int]
    indexes: array[int]
    token_ids: array[int]
    finished: list[tuple[int, str]] = field(default_factory=list)
