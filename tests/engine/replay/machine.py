"""A machine whose step times are known, and recordings that it makes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from engine.physics.model_spec import ModelSpec
from engine.replay.recording import Arrival, Recording, Settings
from engine.replay.replay import Outcome, replay
from engine.replay.steps import Floats, Steps, Work
from telemetry.schema import PHASES, StepRecord

SPEC = ModelSpec("smol", 30, 576, 1536, 9, 3, 64, 49152, True, 8192)
PEAK_FLOPS, PEAK_BANDWIDTH = 455e9, 37.4e9
CONTINUOUS = Settings("continuous", 16, 256, 2000, False)


@dataclass(frozen=True)
class Machine:
    """A small CPU: 34 GB/s, 380 GFLOP/s, half of the shorter of both not hidden."""

    bandwidth: float = 34e9
    flops: float = 380e9
    unhidden: float = 0.5
    overhead_s: float = 1e-3

    def forward_s(self, work: Work) -> float:
        read, math = work.weight_bytes / self.bandwidth, work.matmul_flops / self.flops
        attention = work.attention_flops / 300e9 + work.kv_bytes / 32e9
        bent = max(read, math) + self.unhidden * min(read, math)
        return self.overhead_s + bent + attention + 5e-5 * work.sequences

    def host_s(self, work: Work) -> float:
        return 4e-4 + 2e-5 * work.sequences + 1e-6 * work.rows


def arrivals(count: int = 120, rate: float = 6.0, seed: int = 1) -> tuple[Arrival, ...]:
    """Prompts of 4 to 500 tokens and answers of 2 to 80, by the clock."""
    rng, t_s, found = random.Random(seed), 0.0, []
    for _ in range(count):
        t_s += rng.expovariate(rate)
        prompt = min(500, max(4, round(rng.lognormvariate(4.3, 1.0))))
        found.append(Arrival(10**12 + round(t_s * 1e9), prompt, rng.randint(2, 80)))
    return tuple(found)


def blank(asked: tuple[Arrival, ...], settings: Settings = CONTINUOUS) -> Recording:
    """A recording whose steps are not known yet."""
    none = np.zeros(0)
    steps = Steps(none.astype(int), *[none] * 8, none.astype(bool))
    return Recording(
        run_id="r",
        spec=SPEC,
        dtype="bf16",
        kv_dtype="bf16",
        one_copy=False,
        peak_flops=PEAK_FLOPS,
        peak_bandwidth=PEAK_BANDWIDTH,
        ttft_slo_s=1.0,
        tpot_slo_s=0.1,
        block_size=16,
        settings=settings,
        arrivals=asked,
        steps=steps,
    )


def recorded(recording: Recording, machine: Machine, noise: float = 0.0) -> Recording:
    """The recording with the steps that the machine runs for it; noise: their relative spread."""
    outcome = run(recording, recording.settings, machine)
    steps = steps_of(outcome.steps)
    factor = np.exp(np.random.default_rng(7).normal(0, noise, len(steps)))
    noisy = replace(steps, forward_s=steps.forward_s * factor, host_s=steps.host_s * factor)
    return replace(recording, steps=noisy)


def run(recording: Recording, settings: Settings, machine: Machine) -> Outcome:
    """What the machine really does."""
    return replay(recording, settings, machine)  # type: ignore[arg-type]


def steps_of(records: list[StepRecord]) -> Steps:
    """As telemetry.queries.replay.steps reads them."""

    def column(value: Callable[[StepRecord], float]) -> Floats:
        return np.array([value(r) for r in records], dtype=float)

    return Steps(
        phase=np.array([PHASES.index(r.phase) for r in records]),
        matmul_flops=column(lambda r: r.linear_flops + r.head_flops),
        weight_bytes=column(lambda r: r.weight_bytes),
        attention_flops=column(lambda r: r.attention_flops),
        kv_bytes=column(lambda r: r.kv_read_bytes + r.kv_write_bytes),
        sequences=column(lambda r: r.prefill_seqs + r.decode_seqs + r.padded_slots),
        rows=column(
            lambda r: r.prefill_tokens + r.decode_tokens + r.padded_slots + r.padded_prefill_tokens
        ),
        forward_s=column(lambda r: r.forward_s),
        host_s=column(lambda r: r.t_host_s),
        held_up=np.zeros(len(records), bool),
    )


def _rows(r: StepRecord) -> float:
    return r.prefill_tokens + r.decode_tokens + r.padded_slots + r.padded_prefill_tokens
