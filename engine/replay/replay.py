"""Recorded arrivals through the real engine on a modelled clock, as fast as Python runs it."""

from __future__ import annotations

import math
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from engine.backends.modelled import ModelledBackend
from engine.backends.synthetic import SyntheticTokens
from engine.block_manager import BlockManager
from engine.clock import ModelledClock
from engine.engine import Engine
from engine.messages import TokenMessage
from engine.replay.arrivals import Arrivals
from engine.replay.prompts import prompt
from engine.replay.recording import Arrival, Recording, Settings
from engine.replay.residuals import Ratio
from engine.replay.step_model import StepTimeModel
from engine.replay.step_time import FittedTime
from engine.request import Request, SamplingParams
from engine.sink import SequenceSteps
from engine.step_record import Accounting, Peaks
from telemetry.schema import BlockRecord, EventRecord, RequestRecord, StepRecord


@dataclass(slots=True)
class Outcome:
    """All that a replayed run would have recorded, but for who sat where: an engine.sink.Sink.

    most_rows, most_kv_bytes: of its largest step.
    """

    steps: list[StepRecord] = field(default_factory=list)
    requests: dict[int, RequestRecord] = field(default_factory=dict)
    events: list[EventRecord] = field(default_factory=list)
    tokens: list[TokenMessage] = field(default_factory=list)
    most_rows: float = 0.0
    most_kv_bytes: float = 0.0

    def step(self, record: StepRecord, sequences: SequenceSteps) -> None:
        self.steps.append(record)

    def request(self, record: RequestRecord) -> None:
        self.requests[record.request_id] = record

    def event(self, record: EventRecord) -> None:
        self.events.append(record)

    def blocks(self, records: Items[BlockRecord]) -> None:
        """Which blocks they were says nothing about time."""

    def samples(self, table: str, records: Items[object]) -> None:
        """A modelled device has none."""


class _Words:
    """What SyntheticTokens asks of a tokenizer, and an engine of a decoder: no text is shown."""

    eos_token_ids: tuple[int, ...] = ()

    def encode(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def decode(self, token_ids: list[int]) -> str:
        return ""


def replay(
    recording: Recording, settings: Settings, model: StepTimeModel, ratio: Ratio | None = None
) -> Outcome:
    """Run the recorded requests under these settings. ratio: a draw of residuals, or none.

    Raises UserError where a request can never run under them.
    """
    return _Replay(recording, settings, model, ratio).run()


class _Replay:
    """The loop that the engine process runs, on a clock that a fitted model moves."""

    def __init__(
        self, recording: Recording, settings: Settings, model: StepTimeModel, ratio: Ratio | None
    ) -> None:
        self._outcome = Outcome()
        self._arrivals = Arrivals(recording.arrivals)
        self._numbers: dict[int, int] = {}  # by the engine's request_id
        self._clock = ModelledClock(min(a.due_ns for a in recording.arrivals), paced=False)
        self._time = FittedTime(model, _accounting(recording), ratio)
        self._engine = self._make_engine(recording, settings)

    def _make_engine(self, recording: Recording, settings: Settings) -> Engine:
        words = _Words()
        return Engine(
            ModelledBackend(self._clock, self._time, SyntheticTokens(words)),
            BlockManager(_blocks(recording, settings), recording.block_size),
            _accounting(recording),
            words,
            self._outcome,
            self._emitted,
            scheduler=settings.scheduler,
            max_batch=settings.max_batch,
            chunk_tokens=settings.chunk_tokens,
            prefix_cache=settings.prefix_cache,
            clock=self._clock,
        )

    def _emitted(self, message: TokenMessage) -> None:
        self._outcome.tokens.append(message)
        for request_id, _ in message.finished:
            self._arrivals.ended(self._numbers.pop(request_id))

    def run(self) -> Outcome:
        while True:
            for number, arrival, arrived_ns in self._arrivals.due(self._clock.now_ns()):
                request_id = self._engine.submit(_request(number, arrival, arrived_ns))
                self._numbers[request_id] = number
            if not self._engine.step() and not self._wait():
                break
        self._outcome.most_rows = self._time.most_rows
        self._outcome.most_kv_bytes = self._time.most_kv_bytes
        return self._outcome

    def _wait(self) -> bool:
        """Go on to what comes next; False at the end."""
        now = self._clock.now_ns()
        times = (self._arrivals.next_ns(now), self._engine.scheduler.wake_ns())
        due = [t for t in times if t is not None]
        if due:
            self._clock.jump(min(due))
        elif self._engine.has_work:
            raise RuntimeError("a replay came to rest although requests wait")
        return bool(due)


def _request(number: int, arrival: Arrival, arrived_ns: int) -> Request:
    sampling = SamplingParams(max_tokens=arrival.output_tokens, ignore_eos=True)
    return Request(prompt(number, arrival), sampling, arrived_ns, arrival.label)


def _blocks(recording: Recording, settings: Settings) -> int:
    """No more than all requests could hold at once, padded to the longest of them."""
    longest = max(a.prompt_tokens + a.output_tokens for a in recording.arrivals)
    most = len(recording.arrivals) * (longest // recording.block_size + 1)
    return min(settings.kv_blocks, most)


def _accounting(recording: Recording) -> Accounting:
    """Without a peak nothing has a floor: as if the device had no limit."""
    peaks = Peaks(recording.peak_flops or math.inf, recording.peak_bandwidth or math.inf)
    return Accounting(
        recording.spec, recording.dtype, recording.kv_dtype, peaks, recording.one_copy
    )
