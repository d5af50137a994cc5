"""The engine process's entry: joins engine and telemetry, then serves until told to stop."""

from __future__ import annotations

import queue
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from engine import messages as m
from engine.channels import Channels, Outbox, exit_at_once, inherited_channels, receive_commands
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.built import BuiltEngine
    from engine.config import EngineConfig
    from engine.device_samples import DeviceSampler
    from telemetry.recorder import Recorder

HEADLESS_INTERVAL_S = 2.0
HEADLESS_GATHER_S = 0.1
# Rows of an envelope beyond those of a live one: what fills whole row groups of the database goes
# there compressed, without a detour through its log.
HEADLESS_ROWS = 4


def main(arguments: list[str]) -> int:
    """arguments: the descriptors of the control, token and telemetry pipes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when the engine ends
    channels = inherited_channels([int(a) for a in arguments])
    start: m.Start = channels.control.recv()
    commands: queue.SimpleQueue[m.Command] = queue.SimpleQueue()
    threading.Thread(
        target=receive_commands,
        args=(channels.control, commands, exit_at_once),
        name="commands",
        daemon=True,
    ).start()
    replies = Outbox(channels.control, "replies")
    try:
        _serve(start, channels, commands, replies)
        return 0
    except UserError as error:
        replies.put(m.Failed(str(error), user_error=True))
    except Exception as error:
        replies.put(m.Failed(f"the engine failed: {type(error).__name__}: {error}", False))
        raise
    finally:
        replies.close()
    return 2


def _serve(
    start: m.Start,
    channels: Channels,
    commands: queue.SimpleQueue[m.Command],
    replies: Outbox,
) -> None:
    build = _builder(start, replies)
    from engine.server import EngineServer
    from telemetry.recorder import CAPACITY, INTERVAL_S, Recorder

    live = start.config.live
    # Nobody watches a headless run: fewer, larger messages and envelopes take less of the cores.
    tokens = Outbox(channels.tokens, "tokens", gather_s=0.0 if live else HEADLESS_GATHER_S)
    every_s = INTERVAL_S if live else HEADLESS_INTERVAL_S
    capacity = CAPACITY if live else {t: HEADLESS_ROWS * rows for t, rows in CAPACITY.items()}
    recorder = Recorder(
        channels.telemetry.send_bytes, droppable=live, interval_s=every_s, capacity=capacity
    )
    sampler = _sampler(start.config, recorder)
    servers: list[EngineServer] = []
    told: list[bool] = []

    def emit(message: m.TokenMessage) -> None:
        tokens.put(message)
        if sampler is not None:
            sampler.step_ended()
        if recorder.failure is not None and not told:
            told.append(True)
            why = f"telemetry can no longer be recorded ({recorder.failure}); restart Stepscope"
            replies.put(m.Failed(why, user_error=False))
        for request_id, _ in message.finished:
            servers[0].request_ended(request_id)

    def progress(stage: str, fraction: float | None) -> None:
        replies.put(m.Progress(stage, fraction))

    try:
        built = build(start.config, recorder, emit, progress)
        servers.append(EngineServer(built, commands, replies.put))
        if start.load is not None:
            servers[0].start_load(start.load)
        servers[0].run()
    finally:
        tokens.close()
        if sampler is not None:
            sampler.close()
        recorder.close()


def _sampler(config: EngineConfig, recorder: Recorder) -> DeviceSampler | None:
    """A modelled device says nothing of itself, and this machine's load is not its."""
    if config.modelled:
        return None
    from engine.device_samples import DeviceSampler, torch_gpu_uuid

    record = partial(recorder.samples, "device_samples")
    if config.backend == "cuda":
        return DeviceSampler(record, torch_gpu_uuid)
    return DeviceSampler(record)


def _builder(start: m.Start, replies: Outbox) -> Callable[..., BuiltEngine]:
    """A modelled engine needs neither torch nor numba, and is there in a fraction of a second."""
    if start.config.modelled:
        from engine.build_modelled import build_modelled_engine

        return build_modelled_engine
    # torch takes a second to import: the owner hears of it before anything else.
    replies.put(m.Progress("starting torch"))
    if start.config.backend == "cuda":
        from engine.build_cuda import build_cuda_engine

        return build_cuda_engine
    from engine.build import build_engine

    return build_engine


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
