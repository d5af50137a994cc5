"""The beats of the five-minute demo as data: load, modes, and the page with its controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.race import Plan
from engine.schedulers import DEFAULT_CHUNK_TOKENS

_NOTHING: Mapping[str, Any] = {}
_RACE = Plan()


@dataclass(frozen=True, slots=True)
class Streams:
    """A closed loop of a workload. levels: streams, one after the other; the last one stays.

    own_tokens: the KV that one stream holds at most; shared_tokens: what all of them share.
    """

    workload: str
    levels: tuple[int, ...]
    own_tokens: int
    shared_tokens: int = 0

    @property
    def most(self) -> int:
        """Streams of the last level."""
        return self.levels[-1]


@dataclass(frozen=True, slots=True)
class Device:
    """A modelled device and model of the catalogue, in whose run a scene plays."""

    device: str
    model: str


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that one beat needs; all KV blocks are offered.

    look_for: what to look for, in a sentence. page: name of its view. load None: no load.
    address: controls of the page that its address keeps. controls: others, which begin with these
    values on a page that is opened. injects: tokens of a prompt that somebody will inject.
    readable: whether the model's words are what it is about.
    """

    name: str
    look_for: str
    page: str
    load: Streams | None
    scheduler: str = "continuous"
    max_batch: int = 16
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    prefix_cache: bool = False
    address: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    controls: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    injects: int | None = None
    readable: bool = False
    on: Device | None = None

    @property
    def modes(self) -> dict[str, Any]:
        """Settings of the engine, by their names there."""
        names = ("scheduler", "max_batch", "chunk_tokens", "prefix_cache")
        return {name: getattr(self, name) for name in names}


def _long_outputs(*levels: int) -> Streams:
    return Streams("longoutput", levels, own_tokens=48 + 224)


_PROMPT = Scene(
    "Type a prompt",
    "Ask something: its tokens appear in the box, and in the steps below beside other streams.",
    "live",
    Streams("steady", (4,), own_tokens=192 + 96),
    readable=True,
)
_CLIMB = Scene(
    "Climb the roof",
    "Streams double from 1 to 32: the point climbs, since one reading of the weights serves all.",
    "roofline",
    _long_outputs(1, 2, 4, 8, 16, 32),
    max_batch=32,
    address={"scale": "absolute"},
)
_CONTEXTS = Scene(
    "Long contexts",
    "The same 32 streams over 1,000 tokens each: each reads KV of its own, so the dashed cap comes "
    "down.",
    "roofline",
    Streams("longcontext", (32,), own_tokens=48 + 160, shared_tokens=4 * 1024),
    scheduler="chunked",
    max_batch=32,
    prefix_cache=True,
    address={"scale": "absolute"},
)
_LONG_PROMPT = Scene(
    "One long prompt",
    "Inject 1,024 tokens: every stream freezes for a step. Pin that, then chunk at 64 and inject "
    "again.",
    "interference",
    _long_outputs(8),
    address={"show": "live"},
    controls={"length": 1024, "budget": 64, "pinned_a": None},
    injects=1024,
)
_THE_RACE = Scene(
    "The race",
    f"Run race: the same {_RACE.requests} requests through static, then continuous; the hatched "
    "slots are padding.",
    "scheduling",
    None,
    address={"view": "Race"},
    controls={
        "race": "",
        "race_workload": _RACE.workload,
        "race_modes": list(_RACE.modes),
        "race_requests": _RACE.requests,
        "race_slots": _RACE.slots,
        "race_seed": _RACE.seed,
    },
)
_H100 = Scene(
    "Modelled H100",
    "64 streams of an 8B model on an H100: far left of the ridge, a stream more is nearly free.",
    "roofline",
    _long_outputs(64),
    max_batch=64,
    address={"scale": "normalised"},
    on=Device("h100-sxm", "llama-3.1-8b"),
)
SCENES = {s.name: s for s in (_PROMPT, _CLIMB, _CONTEXTS, _LONG_PROMPT, _THE_RACE, _H100)}
"""Name to scene, in the order of the demo."""
