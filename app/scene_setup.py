"""Sets the engine up for a scene, through the same commands that the controls send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from app import state
from app.new_run import modelled_config
from app.race import races
from app.ramp import Ramp
from app.scenes import Device, Scene, Streams
from engine.errors import UserError
from engine.messages import Load

HOLD_S = 3.0
_SHORT_ANSWER = 8


class SceneError(ValueError):
    """Why a scene cannot play now: one line, with nothing changed."""


def set_up(current: state.Session | None, scene: Scene) -> list[str]:
    """Ask the engine for load and modes; lines about what is less than the scene wants.

    A paused engine goes on. Raises SceneError.
    """
    ready = None if current is None else current.ready
    if state.failure():
        raise SceneError("the engine has stopped: restart Stepscope, then choose the scene")
    if current is None or ready is None or current.phase != "ready" or current.status is None:
        raise SceneError("the engine is starting: choose the scene when it runs")
    if races().running:
        raise SceneError("a race holds the engine: wait until it is over, or cancel it")
    if scene.on is not None and not _runs_on(current, scene.on):
        _begin(current, scene, scene.on)
        return []
    load, lines = fitted(scene, ready.limits)
    blocks = ready.limits["kv_blocks_capacity"]
    current.configure(**scene.modes, kv_blocks=blocks)
    _send(current, load)
    if current.status.paused:
        current.resume()
    if scene.readable and ready.run.get("clock") == "modelled":
        lines.append("This engine is modelled, its words are synthetic: see “+ new run: this CPU”.")
    return lines


def _send(current: state.Session, load: Streams | None) -> None:
    if load is None:
        current.stop_load()
    elif len(load.levels) > 1:
        current.ramp(Ramp(load.workload, load.levels, HOLD_S))
    else:
        current.load(load.workload, concurrency=load.most)


def fitted(scene: Scene, limits: Mapping[str, int]) -> tuple[Streams | None, list[str]]:
    """The load with as many streams as the KV blocks hold at once, and what there is to tell."""
    size, capacity = limits["block_size"], limits["kv_blocks_capacity"]
    room = min(limits["max_context"], capacity * size)
    lines, load = [], scene.load
    if scene.injects is not None and scene.injects + _SHORT_ANSWER > room:
        lines.append(f"A prompt of {scene.injects:,} tokens does not fit: inject a shorter one.")
    if load is None:
        return None, lines
    fits = max(1, (capacity - _blocks(load.shared_tokens, size)) // _blocks(load.own_tokens, size))
    if fits >= load.most:
        return load, lines
    lines.append(f"The KV blocks here hold {fits} of its {load.most} streams at once.")
    levels = tuple(dict.fromkeys(min(level, fits) for level in load.levels))
    return replace(load, levels=levels), lines


def _blocks(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


def _runs_on(current: state.Session, wanted: Device) -> bool:
    """Whether the live run is one of that device and model already."""
    config = json.loads(current.ready.run.get("config") or "{}") if current.ready else {}
    engine = config.get("engine", {})
    return (engine.get("device"), engine.get("model")) == (wanted.device, wanted.model)


def _begin(current: state.Session, scene: Scene, on: Device) -> None:
    load = Load(scene.load.workload, concurrency=scene.load.most) if scene.load else None
    try:
        current.new_run(modelled_config(on.device, on.model, **scene.modes), load)
    except UserError as error:
        raise SceneError(str(error)) from None
