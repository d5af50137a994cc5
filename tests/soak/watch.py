"""What a soak keeps an eye on: every token and every request, and the memory of the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from engine.messages import TokenMessage
from engine.sink import SequenceSteps, Sink
from telemetry.clock import NS_PER_S, now_ns, seconds
from telemetry.schema import BlockRecord, EventRecord, RequestRecord, StepRecord

MIB = 1 << 20


@dataclass
class Watch:
    """Stands between engine and recorder (engine.sink.Sink), and hears the tokens.

    Keeps nothing of a request that has ended, so that its own memory is flat.
    """

    recorder: Sink
    counts: Counter[str] = field(default_factory=Counter)
    outputs: dict[int, list[int]] = field(default_factory=dict)  # of live requests
    ended: dict[int, tuple[list[int], str]] = field(default_factory=dict)  # until taken

    def submitted(self, request_id: int) -> None:
        self.counts["requests"] += 1
        self.outputs[request_id] = []

    def heard(self, message: TokenMessage) -> None:
        """Tokens come in order, each once, of live requests only; each request ends once."""
        rows = zip(message.request_ids, message.indexes, message.token_ids, strict=True)
        for request_id, index, token in rows:
            assert index == len(self.outputs[request_id]), f"request {request_id}, token {index}"
            self.outputs[request_id].append(token)
        self.counts["tokens"] += len(message.token_ids)
        for request_id, reason in message.finished:
            self.ended[request_id] = (self.outputs.pop(request_id), reason)
            self.counts[f"ended: {reason}"] += 1

    def take_ended(self) -> dict[int, tuple[list[int], str]]:
        """Output tokens and reason of those who ended since the last call."""
        ended, self.ended = self.ended, {}
        return ended

    # --- the sink ---

    def step(self, record: StepRecord, sequences: SequenceSteps) -> None:
        assert record.t_step_s > 0
        self.counts["steps"] += 1
        self.counts[f"steps: {record.scheduler}"] += 1
        for name in ("evictions", "prefix_hit_tokens", "preemptions", "recomputed_tokens"):
            self.counts[name] += getattr(record, name)
        self.recorder.step(record, sequences)

    def request(self, record: RequestRecord) -> None:
        self.recorder.request(record)

    def event(self, record: EventRecord) -> None:
        self.counts["events"] += 1
        self.recorder.event(record)

    def blocks(self, records: Sequence[BlockRecord]) -> None:
        self.recorder.blocks(records)

    def samples(self, table: str, records: Sequence[Any]) -> None:
        self.counts[table] += len(records)
        self.recorder.samples(table, records)


@dataclass
class Memory:
    """Resident memory of this process, a sample a second: [(seconds, bytes)]."""

    samples: list[tuple[float, int]] = field(default_factory=list)
    _started_ns: int = field(default_factory=now_ns)
    _next_ns: int = 0

    def sample(self) -> None:
        """Cheap enough to be called at every step."""
        now = now_ns()
        if now >= self._next_ns:
            self._next_ns = now + NS_PER_S
            rss = psutil.Process().memory_info().rss
            self.samples.append((seconds(now - self._started_ns), rss))

    def growth(self) -> tuple[float, float]:
        """(bytes, bytes per minute) after warm-up, the first quarter, by a line through the rest.

        Median-based (Theil 1950 on thirds), so that single peaks move nothing.
        """
        rest = self.samples[len(self.samples) // 4 :]
        third = len(rest) // 3
        if not third:
            return 0.0, 0.0
        (t0, early), (t1, late) = _middle(rest[:third]), _middle(rest[-third:])
        slope = (late - early) / (t1 - t0)
        return slope * (rest[-1][0] - rest[0][0]), slope * 60


def _middle(samples: list[tuple[float, int]]) -> tuple[float, float]:
    times, sizes = sorted(t for t, _ in samples), sorted(size for _, size in samples)
    return times[len(times) // 2], float(sizes[len(sizes) // 2])
