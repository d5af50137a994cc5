"""One engine driven step by step, and what the steps of a load took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.bench.tap import Tap
from engine.build import build_engine
from engine.built import BuiltEngine
from engine.config import EngineConfig
from engine.messages import TokenMessage
from engine.request import Request, SamplingParams
from engine.sink import Sink
from telemetry.clock import now_ns, seconds
from telemetry.schema import StepRecord

MAX_BATCH = 128


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Sums over steps: seconds, needed FLOPs and bytes (ran minus padded), KV bytes."""

    steps: int
    time_s: float
    flops: int
    bytes: int
    kv_bytes: int

    @classmethod
    def of(cls, records: Sequence[StepRecord]) -> StepTotals:
        kv = sum(r.kv_read_bytes + r.kv_write_bytes for r in records)
        return cls(
            steps=len(records),
            time_s=sum(r.t_step_s for r in records),
            flops=sum(r.flops - r.padded_flops for r in records),
            bytes=kv + sum(r.weight_bytes - r.padded_bytes for r in records),
            kv_bytes=kv,
        )


@dataclass(frozen=True, slots=True)
class Generated:
    """One load that ran to its end; makespan from submit on.

    token_ns: when tokens came, for each step that emitted some, on the monotonic clock.
    """

    records: list[StepRecord]
    token_ns: list[int]
    makespan_s: float
    output_tokens: int

    @property
    def first_token_ns(self) -> int:
        return self.token_ns[0]


class EngineDriver:
    """The engine with its recorder, in this process; nothing else asks it for anything."""

    def __init__(self, config: EngineConfig, sink: Sink) -> None:
        """Raises UserError for what cannot run."""
        self.tap = Tap(sink)
        self.next_request_id = 0
        self._heard: list[TokenMessage] = []
        self.built: BuiltEngine = build_engine(
            config, self.tap, self._heard.append, lambda stage, fraction: None
        )
        self.engine = self.built.engine

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        output_tokens: Sequence[int],
        *,
        scheduler: str = "continuous",
        max_batch: int = MAX_BATCH,
        after_step: Callable[[int], None] | None = None,
    ) -> Generated:
        """All requests at once, greedy, to their full lengths. Raises RequestError.

        after_step gets the instant at which the step's tokens were out, ns.
        """
        self.engine.configure(scheduler=scheduler, max_batch=max_batch)
        self.tap.steps.clear()
        self._heard.clear()
        started = now_ns()
        for prompt, tokens in zip(prompts, output_tokens, strict=True):
            sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
            request = Request(tuple(prompt), sampling, now_ns())
            self.next_request_id = self.engine.submit(request) + 1
        while self.engine.has_work:
            self.engine.step()
            if after_step is not None:
                after_step(self._heard[-1].t_ns)
        makespan_s = seconds(now_ns() - started)
        self.engine.idle()
        emitted = [m for m in self._heard if m.token_ids]
        count = sum(len(m.token_ids) for m in emitted)
        if count != sum(output_tokens):
            raise RuntimeError(f"{count} tokens came, asked were {sum(output_tokens)}")
        return Generated(list(self.tap.steps), [m.t_ns for m in emitted], makespan_s, count)

    def decode(self, prompts: Sequence[Sequence[int]], steps: int) -> StepTotals:
        """The `steps` decode steps after the prompts, all sequences in each.

        Raises RequestError where the KV cache does not hold them all at once.
        """
        batch = len(prompts)
        done = self.generate(prompts, [steps + 1] * batch, max_batch=batch)
        full = [r for r in done.records if r.phase == "decode" and r.decode_seqs == batch]
        if len(full) < steps // 2:
            raise RuntimeError(f"only {len(full)} of {steps} steps held all {batch} sequences")
        return StepTotals.of(full)

    def prefill(self, prompt: Sequence[int]) -> StepTotals:
        """The steps from a prompt to its first token."""
        return StepTotals.of(self.generate([prompt], [1]).records)
