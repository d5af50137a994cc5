"""The engine: queue, scheduler and backend, one step at a time."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol, TypeVar

import numpy as np

from engine.admission import check_kv_blocks, check_request
from engine.backends.base import Backend
from engine.batch import Preemption, ScheduledBatch
from engine.block_manager import BlockManager
from engine.clock import REAL_CLOCK, Clock
from engine.decodes import Decodes, Ints, int_column
from engine.detokenizer import Detokenizer
from engine.kernel_samples import KernelSampling
from engine.messages import TokenMessage
from engine.request import Request
from engine.schedulers import (
    DEFAULT_CHUNK_TOKENS,
    SequenceQueue,
    check_chunk_tokens,
    check_max_batch,
    check_scheduler,
    make_scheduler,
)
from engine.sequence import Sequence
from engine.sink import Sink
from engine.step_record import (
    Accounting,
    StepTiming,
    sequence_steps,
    step_record,
    token_message,
)
from telemetry.clock import NS_PER_S
from telemetry.schema import BlockRecord, EventRecord

_PEAK_EVENT_EVERY_NS = 5 * NS_PER_S  # a step above the roof is rarely alone


_T = TypeVar("_T")


class Decoder(Protocol):
    """What the engine needs of a tokenizer."""

    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...

    def decode(self, token_ids: list[int]) -> str: ...


class Engine:
    """Single-threaded: every method is called from the thread that steps."""

    def __init__(
        self,
        backend: Backend,
        blocks: BlockManager,
        accounting: Accounting,
        decoder: Decoder,
        sink: Sink,
        emit: Callable[[TokenMessage], None],
        *,
        scheduler: str,
        max_batch: int,
        chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
        prefix_cache: bool = False,
        clock: Clock = REAL_CLOCK,
    ) -> None:
        self.clock = clock
        self.backend, self.accounting = backend, accounting
        blocks.set_prefix_cache(prefix_cache)
        self.queue = SequenceQueue(blocks, max_batch, chunk_tokens)
        self.scheduler = make_scheduler(scheduler, self.queue)
        self.steps = 0
        self.records_steps = True
        """Off: steps leave no records, for measuring what recording them costs."""
        self._decoder, self._sink, self._emit = decoder, sink, emit
        self._ids = count()
        self._live: dict[int, Sequence] = {}
        self._stop_text: dict[int, Detokenizer] = {}
        self._evictions = 0  # since the last step
        self._last_end_ns: int | None = None
        self._switches = _involuntary_switches()
        self._last_peak_event_ns = -_PEAK_EVENT_EVERY_NS
        self._kernels = KernelSampling(backend, accounting)

    # --- requests ---

    def submit(self, request: Request) -> int:
        """Queue a request; its id. Raises RequestError if it can never run."""
        check_request(request, self.accounting.spec, self.queue.blocks)
        sequence = Sequence(next(self._ids), request)
        self._live[sequence.request_id] = sequence
        if request.sampling.stop:
            self._stop_text[sequence.request_id] = Detokenizer(self._decoder, request.sampling.stop)
        self.queue.waiting.append(sequence)
        self._sink.request(sequence.record())
        return sequence.request_id

    def cancel(self, request_id: int) -> bool:
        """Stop a request between steps; False if it is not running or waiting."""
        sequence = self._live.get(request_id)
        if sequence is None:
            return False
        now = self.clock.now_ns()
        self._finish(sequence, "cancelled", now)
        if sequence.slot is None:
            self.queue.waiting.remove(sequence)
        else:
            self.scheduler.finished(sequence)
        finished = [(request_id, "cancelled")]
        nothing = int_column(())
        self._emit(TokenMessage(self.steps - 1, now, nothing, nothing, nothing, finished))
        if not self.has_work:
            self._record_blocks()
        return True

    def withdraw(self, request_id: int) -> bool:
        """Cancel a request that never ran; False if it did or has ended.

        One that waits after a preemption goes on: somebody has read part of its answer.
        """
        sequence = self._live.get(request_id)
        waits = sequence is not None and sequence.slot is None and not sequence.preemptions
        return waits and self.cancel(request_id)

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    @property
    def in_flight(self) -> int:
        """Requests that wait or run."""
        return len(self._live)

    # --- settings ---

    def configure(
        self,
        *,
        scheduler: str | None = None,
        max_batch: int | None = None,
        chunk_tokens: int | None = None,
        prefix_cache: bool | None = None,
        kv_blocks: int | None = None,
    ) -> None:
        """Change what is not None, between two steps; each change is an event of its own.

        Raises UserError before anything changes.
        """
        queue, blocks = self.queue, self.queue.blocks
        if scheduler is not None:
            check_scheduler(scheduler)
        if max_batch is not None:
            check_max_batch(max_batch)
        if chunk_tokens is not None:
            check_chunk_tokens(chunk_tokens)
        if kv_blocks is not None:
            check_kv_blocks(kv_blocks, blocks, self._live.values())
        self._change("scheduler_switch", self.scheduler.name, scheduler, self._switch)
        self._change("max_batch", queue.max_batch, max_batch, queue.resize)
        self._change("chunk_tokens", queue.chunk_tokens, chunk_tokens, queue.set_chunk_tokens)
        self._change("prefix_cache", blocks.prefix_cache, prefix_cache, blocks.set_prefix_cache)
        self._change("kv_blocks", blocks.num_blocks, kv_blocks, blocks.resize)
        if not self.has_work:
            self._record_blocks()

    def _change(self, kind: str, old: _T, new: _T | None, apply: Callable[[_T], None]) -> None:
        if new is not None and new != old:
            apply(new)
            self.event(kind, {"from": old, "to": new})

    def _switch(self, scheduler: str) -> None:
        fresh = make_scheduler(scheduler, self.queue)
        self.scheduler.leave()
        self.scheduler = fresh

    def event(self, kind: str, detail: dict[str, Any], t_ns: int | None = None) -> None:
        """A mark on every time axis."""
        step = self.steps - 1 if self.steps else None
        when = self.clock.now_ns() if t_ns is None else t_ns
        self._sink.event(EventRecord(when, step, kind, json.dumps(detail)))

    def idle(self) -> None:
        """Nothing ran: the time until the next step is not the host's fault."""
        self._last_end_ns = None

    # --- the step ---

    def step(self) -> bool:
        """Schedule and run one step; False when nothing can run now."""
        entered = self.clock.now_ns()
        plan = self.scheduler.schedule(entered)
        for preemption in plan.preemptions:
            self._preempted(preemption)
        if not plan.num_chunks:
            self.idle()
            return False
        # While work waits, a step starts where the last one ended: commands, load and telemetry
        # in between are the host's time, and part of schedule_s.
        start = entered if self._last_end_ns is None else self._last_end_ns
        if self._last_end_ns is None:
            self._new_switches()  # those of the idle time are nobody's
        scheduled = self.clock.now_ns()
        inputs = self.backend.prepare(plan)
        if self.records_steps:
            self._kernels.begin(plan, entered)
        prepared = self.clock.now_ns()
        logits = self.backend.forward(inputs)
        forwarded = self.clock.now_ns()
        output = self.backend.sample(plan, logits)
        for sequence in plan.admitted:
            if sequence.admitted_ns is None:
                sequence.admitted_ns = entered
        tokens = np.asarray(output.token_ids, np.int64)
        finished = self._apply(plan, tokens)
        end = self.clock.now_ns()
        timing = StepTiming(start, scheduled, prepared, forwarded, end, self._new_switches())
        self._publish(plan, tokens, timing, finished)
        return True

    def _preempted(self, preemption: Preemption) -> None:
        sequence, blocks, computed_tokens = preemption
        detail = {"blocks": blocks, "computed_tokens": computed_tokens}
        self.event("preempt", {"request_id": sequence.request_id, **detail})
        self._sink.request(sequence.record())

    def _apply(self, plan: ScheduledBatch, tokens: Ints) -> list[tuple[Sequence, str]]:
        """Advance every sequence; those that have ended, with the reason, in order of the batch."""
        finished = [] if plan.decodes is None else self._apply_decodes(plan.decodes, tokens)
        sampled = iter(tokens[plan.num_decodes :].tolist())
        for chunk in plan.others:
            token = next(sampled) if chunk.samples else None
            if not chunk.padded:
                self.queue.computed(chunk)
            if chunk.emits and token is not None:
                chunk.sequence.token_ids.append(token)
                reason = self._stop_reason(chunk.sequence)
                if reason is not None:
                    finished.append((chunk.sequence, reason))
        return finished

    def _apply_decodes(self, decodes: Decodes, tokens: Ints) -> list[tuple[Sequence, str]]:
        self.queue.computed_decodes(decodes, tokens[: len(decodes)].tolist())
        sequences = decodes.members.sequences
        reasons: dict[int, str | None] = dict.fromkeys(decodes.at_length(), "length")
        for place in decodes.members.watched:
            reasons[place] = self._stop_reason(sequences[place])
        return [(sequences[at], why) for at, why in sorted(reasons.items()) if why is not None]

    def _stop_reason(self, sequence: Sequence) -> str | None:
        params, token = sequence.request.sampling, sequence.token_ids[-1]
        if token in self._decoder.eos_token_ids and not params.ignore_eos:
            return "stop"
        text = self._stop_text.get(sequence.request_id)
        if text is not None:
            text.add([token])
            if text.stopped:
                return "stop"
        return "length" if sequence.output_tokens >= params.max_tokens else None

    def _publish(
        self,
        plan: ScheduledBatch,
        tokens: Ints,
        timing: StepTiming,
        finished: list[tuple[Sequence, str]],
    ) -> None:
        """Tokens first, since a person waits for them; then telemetry; then slots are freed."""
        ended = [(s.request_id, reason) for s, reason in finished]
        self._emit(token_message(self.steps, timing.end_ns, plan, tokens, ended))
        self._record(plan, timing)
        for chunk in plan.others:
            if chunk.emits and chunk.sequence.first_token_ns is None:
                chunk.sequence.first_token_ns = timing.end_ns
                self._sink.request(chunk.sequence.record())
        for sequence, reason in finished:
            self._finish(sequence, reason, timing.end_ns)
            self.scheduler.finished(sequence)
        self.steps += 1
        self._last_end_ns = timing.end_ns if self.has_work else None
        if not self.has_work:
            self._record_blocks()

    def _record(self, plan: ScheduledBatch, timing: StepTiming) -> None:
        self._record_blocks()
        evictions, self._evictions = self._evictions, 0
        if not self.records_steps:
            return
        record = step_record(
            self.steps, self.scheduler.name, plan, self.queue, timing, self.accounting, evictions
        )
        self._sink.step(record, sequence_steps(plan))
        samples = self._kernels.records(self.steps, plan)
        if samples:
            self._sink.samples("kernel_samples", samples)
        if record.t_overhead_s is not None and record.t_overhead_s < 0:
            self._peak_beaten(record.t_step_s, record.t_overhead_s, timing.end_ns)

    def _peak_beaten(self, t_step_s: float, t_overhead_s: float, t_ns: int) -> None:
        if t_ns - self._last_peak_event_ns < _PEAK_EVENT_EVERY_NS:
            return
        self._last_peak_event_ns = t_ns
        detail = {
            "t_step_s": t_step_s,
            "floor_s": t_step_s - t_overhead_s,
            "advice": f"a step beat the measured roof: {self.accounting.peaks.remedy}",
        }
        self.event("peak_beaten", detail, t_ns)

    def _finish(self, sequence: Sequence, reason: str, t_ns: int) -> None:
        sequence.finish_reason, sequence.finished_ns = reason, t_ns
        self._live.pop(sequence.request_id)
        self._stop_text.pop(sequence.request_id, None)
        self.backend.forget(sequence.request_id)
        self._sink.request(sequence.record())

    def _record_blocks(self) -> None:
        """Blocks as they are from this step on; what a step gives back, from the next one on."""
        self._evictions += self.queue.blocks.evictions
        changes = self.queue.blocks.drain()
        if changes:
            self._sink.blocks([BlockRecord(self.steps, *change) for change in changes])

    def _new_switches(self) -> int | None:
        """Since the last call; None where this machine's time is not the step's."""
        if self.clock.name != REAL_CLOCK.name:
            return None
        before, self._switches = self._switches, _involuntary_switches()
        return self._switches - before

    def check_integrity(self) -> None:
        """Raise IntegrityError unless queue, slots and blocks agree."""
        self.queue.check_integrity()


def _involuntary_switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
