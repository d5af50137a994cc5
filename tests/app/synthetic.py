"""A run that never ran, with true counts: the physics counts every step, only times are invented.

For looking at pages and for asserting figures as data; nothing outside the tests imports it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from engine.physics.cost import ChunkWork, bound, count_step, mbu, mfu, times
from engine.physics.model_spec import ModelSpec
from telemetry.batches import table_of_rows
from telemetry.schema import TABLES, StepRecord, columns
from telemetry.store import Store

SMOLLM2 = ModelSpec(
    name="SmolLM2-135M-Instruct",
    layers=30,
    hidden=576,
    intermediate=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49152,
    tied_embeddings=True,
    max_context=8192,
)
RUN_ID = "r-synthetic"
PEAK_FLOPS = 420e9
PEAK_BANDWIDTH = 34e9
BLOCK = 16


@dataclass
class _Sequence:
    request_id: int
    prompt: int
    outputs: int
    arrived_ns: int
    slot: int = -1
    context: int = 0
    made: int = 0
    first_ns: int | None = None
    admitted_ns: int | None = None
    finished_ns: int | None = None

    @property
    def done(self) -> bool:
        return self.made >= self.outputs


@dataclass
class Simulation:
    """Schedules skewed requests by `static` or `continuous` and keeps the records it makes."""

    slots: int = 10
    seed: int = 1
    now_ns: int = 5_000_000_000
    step: int = 0
    scheduler: str = "continuous"
    peaks: tuple[float | None, float | None] = (PEAK_FLOPS, PEAK_BANDWIDTH)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {t: [] for t in TABLES})
    opened: bool = False
    waiting: list[_Sequence] = field(default_factory=list)
    running: dict[int, _Sequence] = field(default_factory=dict)
    all_sequences: list[_Sequence] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def run_row(self) -> dict[str, Any]:
        return {
            "started_wall": datetime(2026, 11, 30, 14, 2, tzinfo=UTC).replace(tzinfo=None),
            "started_ns": 5_000_000_000,
            "clock": "real",
            "source": "embedded",
            "model": SMOLLM2.name,
            "device": "CPU, 2 threads",
            "backend": "cpu",
            "dtype": "bf16",
            "kv_dtype": "bf16",
            "peak_flops": self.peaks[0],
            "peak_bandwidth": self.peaks[1],
            "peaks_source": "measured" if self.peaks[0] else None,
            "ttft_slo_s": None,
            "tpot_slo_s": 0.05,
            "config": "{}",
            "schema_version": 1,
        }

    def arrive(self, requests: int, prompt: int = 40) -> None:
        """Add requests: one long output to nine short ones."""
        for _ in range(requests):
            n = len(self.all_sequences)
            outputs = 120 if n % 10 == 0 else 16
            length = int(prompt * self.random.uniform(0.8, 1.2))
            sequence = _Sequence(n, length, outputs, self.now_ns)
            self.waiting.append(sequence)
            self.all_sequences.append(sequence)

    def switch(self, scheduler: str) -> None:
        detail = json.dumps({"from": self.scheduler, "to": scheduler})
        self.event("scheduler_switch", detail)
        self.scheduler = scheduler

    def event(self, kind: str, detail: str = "{}") -> None:
        last = self.step - 1 if self.step else None
        self.rows["events"].append(
            {"t_ns": self.now_ns, "step": last, "kind": kind, "detail": detail}
        )

    def _admit(self) -> None:
        if self.scheduler == "static" and self.running:
            return
        free = [s for s in range(self.slots) if s not in self.running]
        for slot in free[: len(self.waiting)]:
            sequence = self.waiting.pop(0)
            sequence.slot, sequence.admitted_ns = slot, self.now_ns
            self.running[slot] = sequence

    def _chunks(self) -> list[tuple[_Sequence, str, ChunkWork]]:
        chunks = []
        for sequence in self.running.values():
            if sequence.done:
                chunks.append((sequence, "padded", ChunkWork(1, sequence.context, 0, 1, True)))
            elif not sequence.context:
                chunks.append((sequence, "prefill", ChunkWork(sequence.prompt, 0, 0, 1)))
            else:
                chunks.append((sequence, "decode", ChunkWork(1, sequence.context, 0, 1)))
        return chunks

    def advance(self) -> bool:
        """One step; False when nothing is left to run."""
        self._admit()
        chunks = self._chunks()
        if not chunks:
            return False
        phases = {phase for _, phase, _ in chunks}
        phase = "decode" if "prefill" not in phases else "prefill"
        phase = "mixed" if "prefill" in phases and len(phases) > 1 else phase
        cost = count_step(SMOLLM2, [c for _, _, c in chunks], "bf16", "bf16")
        real = times(cost, PEAK_FLOPS, PEAK_BANDWIDTH)
        floor = real.floor_s or 0.0
        forward = floor * self.random.uniform(1.25, 1.5) + 0.0015
        schedule, prepare, sample = 0.0002, 0.0003, 0.0004 * self.random.uniform(0.8, 1.6)
        host = schedule + prepare + sample
        step_s = forward + host
        shown = times(cost, *self.peaks)
        padded = sum(1 for _, p, _ in chunks if p == "padded")
        known = shown.floor_s is not None
        start_ns = self.now_ns
        self.now_ns += round(step_s * 1e9)
        prefill = [c for _, p, c in chunks if p == "prefill"]
        blocks = sum(-(-(s.context + c.tokens) // BLOCK) for s, _, c in chunks)
        record = StepRecord(
            step=self.step,
            t_start_ns=start_ns,
            t_step_s=step_s,
            scheduler=self.scheduler,
            phase=phase,
            n_running=len(chunks) - padded,
            n_waiting=len(self.waiting),
            prefill_seqs=len(prefill),
            decode_seqs=sum(1 for _, p, _ in chunks if p == "decode"),
            prefill_tokens=sum(c.tokens for c in prefill),
            decode_tokens=sum(1 for _, p, _ in chunks if p == "decode"),
            batch_slots=self.slots,
            padded_slots=padded,
            padded_prefill_tokens=0,
            limit_bound="sequences" if self.waiting else "none",
            flops=cost.flops,
            linear_flops=cost.linear_flops,
            attention_flops=cost.attention_flops,
            head_flops=cost.head_flops,
            padded_flops=cost.padded_flops,
            weight_bytes=cost.weight_bytes,
            kv_read_bytes=cost.kv_read_bytes,
            kv_write_bytes=cost.kv_write_bytes,
            padded_bytes=cost.padded_bytes,
            intensity=cost.intensity,
            t_compute_s=shown.t_compute_s,
            t_memory_s=shown.t_memory_s,
            t_weights_s=shown.t_weights_s,
            t_kv_s=shown.t_kv_s,
            t_overhead_s=step_s - floor if known else None,
            t_inefficiency_s=forward - floor if known else None,
            t_host_s=host,
            schedule_s=schedule,
            prepare_s=prepare,
            forward_s=forward,
            sample_s=sample,
            involuntary_switches=0,
            mfu=mfu(cost, step_s, self.peaks[0]),
            mbu=mbu(cost, step_s, self.peaks[1]),
            bound=bound(shown, step_s, host),
            kv_blocks_total=640,
            kv_blocks_used=blocks,
            kv_blocks_cached=0,
            evictions=0,
            activation_bytes=None,
            prefix_hit_tokens=0,
            preemptions=0,
            recomputed_tokens=0,
        )
        self.rows["steps"].append({f.name: getattr(record, f.name) for f in fields(record)})
        for sequence, what, chunk in chunks:
            self._emit(sequence, what, chunk)
        if self.scheduler == "static":
            if all(s.done for s in self.running.values()):
                self.running.clear()
        else:
            self.running = {k: s for k, s in self.running.items() if not s.done}
        self.step += 1
        return True

    def _emit(self, sequence: _Sequence, what: str, chunk: ChunkWork) -> None:
        before = sequence.context
        emitted = 0 if what == "padded" else 1
        sequence.context += chunk.tokens
        if emitted:
            self.rows["tokens"].append(
                {
                    "request_id": sequence.request_id,
                    "index": sequence.made,
                    "token_id": 7,
                    "step": self.step,
                    "t_ns": self.now_ns,
                }
            )
            sequence.made += 1
            sequence.first_ns = sequence.first_ns or self.now_ns
            sequence.finished_ns = self.now_ns if sequence.done else None
        self.rows["sequence_steps"].append(
            {
                "step": self.step,
                "request_id": sequence.request_id,
                "slot": sequence.slot,
                "phase": what,
                "tokens": chunk.tokens,
                "emitted_tokens": emitted,
                "context_tokens": sequence.context,
                "computed_context_tokens": before,
            }
        )

    def _request_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "request_id": s.request_id,
                "arrived_ns": s.arrived_ns,
                "admitted_ns": s.admitted_ns,
                "first_token_ns": s.first_ns,
                "finished_ns": s.finished_ns,
                "prompt_tokens": s.prompt,
                "cached_tokens": 0,
                "output_tokens": s.made,
                "finish_reason": "length" if s.done else None,
                "preemptions": 0,
                "label": "skew",
            }
            for s in self.all_sequences
        ]

    def write(self, store: Store, run_id: str = RUN_ID) -> None:
        """Commit everything kept so far as rows of one run, and forget it."""
        if not self.opened:
            self.rows["runs"] = [self.run_row()]
            self.opened = True
        self.rows["requests"] = self._request_rows()
        names = {table: list(columns(table)) for table in TABLES}
        store.append(
            run_id,
            {
                table: table_of_rows(table, [tuple(r[c] for c in names[table]) for r in rows])
                for table, rows in self.rows.items()
                if rows
            },
        )
        store.flush()
        self.rows = {table: [] for table in TABLES}


def race(peaks: tuple[float | None, float | None] = (PEAK_FLOPS, PEAK_BANDWIDTH)) -> Simulation:
    """40 skewed requests under static, then 40 under continuous, with a ramp before."""
    simulation = Simulation(peaks=peaks)
    for slots in (1, 2, 4, 8):
        simulation.slots = slots
        simulation.arrive(slots + 1)
        while simulation.advance():
            pass
    simulation.slots = 10
    simulation.switch("static")
    simulation.arrive(40)
    while simulation.advance():
        pass
    simulation.switch("continuous")
    simulation.arrive(40)
    while simulation.advance():
        pass
    return simulation


def not_reporting(*columns: str) -> Simulation:
    """Two requests to their end, of a source that does not know these columns of `steps`."""
    simulation = Simulation()
    simulation.arrive(2)
    while simulation.advance():
        pass
    for row in simulation.rows["steps"]:
        row.update(dict.fromkeys(columns))
    return simulation
