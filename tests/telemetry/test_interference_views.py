"""Interference and blame: worked by hand, and against loops over plain lists."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import pytest
from telemetry_records import Message, a_request, a_run, a_step, an_event

from telemetry.batches import table_of, token_table
from telemetry.schema import SequenceStepRecord
from telemetry.store import Store

MS = 1_000_000


@dataclass
class Run:
    """Steps one after another; rows of each: (request, phase, tokens, context before)."""

    steps: list[Any] = field(default_factory=list)
    rows: list[SequenceStepRecord] = field(default_factory=list)
    tokens: list[Message] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    made: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    now_ms: int = 0

    def step(
        self,
        took_ms: int,
        rows: list[tuple[int, str, int, int]],
        switches: int | None = 0,
        flops: tuple[int, int] = (0, 0),
        math_ms: float | None = None,
        read_ms: float | None = None,
    ) -> None:
        """Every row that decodes emits a token; flops: of the linear layers and of attention.

        math_ms, read_ms: what the step's FLOPs and bytes take at the peaks; None: unknown.
        """
        number, kinds = len(self.steps), {phase for _, phase, _, _ in rows}
        prompt = kinds & {"prefill", "recompute"}
        phase = "decode" if not prompt else "mixed" if kinds - prompt else "prefill"
        self.steps.append(
            a_step(
                number,
                t_start_ns=self.now_ms * MS,
                t_step_s=took_ms / 1e3,
                phase=phase,
                involuntary_switches=switches,
                flops=sum(flops),
                linear_flops=flops[0],
                attention_flops=flops[1],
                t_compute_s=None if math_ms is None else math_ms / 1e3,
                t_memory_s=None if read_ms is None else read_ms / 1e3,
            )
        )
        self.now_ms += took_ms
        emits = [r for r, phase, _, _ in rows if phase == "decode"]
        self.rows += [
            SequenceStepRecord(number, r, slot, phase, n, int(phase == "decode"), start + n, start)
            for slot, (r, phase, n, start) in enumerate(rows)
        ]
        indexes = [self.made[r] for r in emits]
        for r in emits:
            self.made[r] += 1
        self.tokens.append(Message(number, self.now_ms * MS, emits, indexes, [7] * len(emits)))

    def write(self, store: Store, sequence_steps: bool = True) -> str:
        run_id = store.start_run(a_run())
        requests = sorted({row.request_id for row in self.rows})
        tables = {
            "steps": table_of("steps", self.steps),
            "events": table_of("events", self.events),
            "requests": table_of("requests", [a_request(r) for r in requests]),
            "tokens": token_table(self.tokens),
        }
        if sequence_steps:
            tables["sequence_steps"] = table_of("sequence_steps", self.rows)
        store.append(run_id, tables)
        store.flush()
        return run_id


def decoding(*requests: int, context: int = 100) -> list[tuple[int, str, int, int]]:
    return [(r, "decode", 1, context) for r in requests]


def found(store: Store, run_id: str, view: str = "interference") -> list[dict[str, Any]]:
    frame = store.reader().frame(
        f'SELECT * FROM {view} WHERE run_id = ? ORDER BY step, request_id, "index"', [run_id]
    )
    known = frame.astype(object).where(frame.notna(), None)
    return [{str(k): v for k, v in row.items()} for row in known.to_dict("records")]


def calm(count: int, took_ms: int = 10) -> Run:
    run = Run()
    for _ in range(count):
        run.step(took_ms, decoding(1, 2))
    return run


def test_a_prompt_in_the_step_of_two_streams_is_blamed_for_all_they_lost(memory: Store) -> None:
    run = calm(6)
    run.step(90, [*decoding(1, 2), (9, "prefill", 64, 0)])
    run_id = run.write(memory)
    last = found(memory, run_id)[-2:]
    assert [g["request_id"] for g in last] == [1, 2]
    for gap in last:
        assert (gap["cause"], gap["baseline_from"]) == ("prefill", "median")
        assert gap["baseline_s"] == pytest.approx(0.010)
        assert gap["interference_s"] == pytest.approx(0.080)
        assert gap["inflation"] == pytest.approx(9.0)
        assert (gap["batch"], gap["kv_tokens"]) == (2, 202)
    blame = found(memory, run_id, "blame")
    assert [(b["request_id"], b["culprit_id"], b["share"]) for b in blame] == [(1, 9, 1), (2, 9, 1)]
    assert sum(b["lost_s"] for b in blame) == pytest.approx(0.160)


def test_steps_that_a_stream_had_no_part_in_count(memory: Store) -> None:
    """A prefill-first engine stalls decodes in steps of their own."""
    run = calm(6)
    run.step(50, [(8, "prefill", 32, 0)])
    run.step(40, [(9, "prefill", 32, 0)])
    run.step(10, decoding(1, 2))
    run_id = run.write(memory)
    gap = found(memory, run_id)[-1]
    assert (gap["after_step"], gap["step"]) == (5, 8)
    assert gap["itl_s"] == pytest.approx(0.100)
    assert gap["interference_s"] == pytest.approx(0.090)
    assert gap["cause"] == "prefill"
    shares = {b["culprit_id"]: b["share"] for b in found(memory, run_id, "blame")}
    assert shares == {8: 0.5, 9: 0.5}


def test_blame_is_divided_by_prompt_flops(memory: Store) -> None:
    """Linear layers by tokens, attention by the positions that they attend to."""
    run = calm(6)
    rows = [*decoding(1, 2), (8, "prefill", 8, 0), (9, "recompute", 8, 100)]
    attended = 101 + 101 + 36 + (800 + 36)
    run.step(90, rows, flops=(1800, attended * 10))
    shares = {b["culprit_id"]: b["share"] for b in found(memory, run.write(memory), "blame")}
    first, second = 800 + 360, 800 + 8360
    assert shares == {
        8: pytest.approx(first / (first + second)),
        9: pytest.approx(second / (first + second)),
    }


# --- the host or a prompt ---


def reading(count: int, took_ms: int, switches: int | None = 0) -> Run:
    """Decode-only steps whose weights and KV take 8 ms to read at the peak."""
    run = Run()
    for _ in range(count):
        run.step(took_ms, decoding(1, 2), switches, (2, 0), math_ms=1, read_ms=8)
    return run


def prompted(run: Run, took_ms: int, tokens: int, switches: int | None, math: bool = True) -> None:
    """Two decodes beside a prompt, whose tokens take a millisecond each at the peak."""
    rows = [*decoding(1, 2), (9, "prefill", tokens, 0)]
    peak_ms = float(tokens + 2) if math else None
    run.step(took_ms, rows, switches, (tokens + 2, 0), math_ms=peak_ms, read_ms=8)


def causes(store: Store, run: Run, last: int) -> list[str | None]:
    """Of the newest gaps, one for each step."""
    return [g["cause"] for g in found(store, run.write(store))[-2 * last :: 2]]


def test_a_gap_of_decodes_alone_is_nobodys_but_the_hosts(memory: Store) -> None:
    run = calm(6)
    run.step(30, decoding(1, 2), switches=1)
    run.step(15, decoding(1, 2), switches=0)
    assert causes(memory, run, 2) == ["host", "unexplained"]
    assert not found(memory, run.write(memory), "blame")


def test_a_stopped_process_is_the_host(memory: Store) -> None:
    """The OS counts no involuntary switch where a signal stopped it: same work, thirty times."""
    run = calm(6)
    run.step(310, decoding(1, 2), switches=0)
    run.step(310, decoding(1, 2), switches=None)
    assert causes(memory, run, 2) == ["host", "unexplained"]


def test_a_prompt_is_blamed_for_a_freeze_whatever_was_switched_meanwhile(memory: Store) -> None:
    """64 ms of math at the peak, and a machine that takes a quarter longer: 80 of the 90 lost."""
    run = reading(6, 10)
    prompted(run, 100, tokens=64, switches=40)
    gap = found(memory, run.write(memory))[-1]
    assert gap["cause"] == "prefill"
    assert gap["inflation"] == pytest.approx(10.0)
    assert [b["culprit_id"] for b in found(memory, gap["run_id"], "blame")] == [9, 9]


def test_a_small_prompt_does_not_answer_for_a_core_that_was_taken(memory: Store) -> None:
    """4 ms of math at the peak are 5 here: of 90 ms lost 85 are the host's."""
    run = reading(6, 10)
    prompted(run, 100, tokens=4, switches=1)
    prompted(run, 16, tokens=4, switches=1)
    assert causes(memory, run, 2) == ["host", "prefill"]
    assert len(found(memory, run.write(memory), "blame")) == 2, "the second prompt's two gaps"


@pytest.mark.parametrize(("took_ms", "cause"), [(169, "prefill"), (171, "host")])
def test_half_of_the_loss_decides(memory: Store, took_ms: int, cause: str) -> None:
    """64 tokens at the machine's pace are 80 ms, half of a loss of 160."""
    run = reading(6, 10)
    prompted(run, took_ms, tokens=64, switches=3)
    assert causes(memory, run, 1) == [cause]


def test_a_busy_machine_slows_decodes_and_prompts_alike(memory: Store) -> None:
    """Decode-only steps at five times their floor: a prompt may take five times its own."""
    run = reading(6, 40, switches=9)
    prompted(run, 340, tokens=64, switches=90)
    assert causes(memory, run, 1) == ["prefill"]


def test_without_a_switch_or_a_peak_nothing_speaks_against_the_prompt(memory: Store) -> None:
    run = reading(6, 10)
    prompted(run, 300, tokens=4, switches=0)
    prompted(run, 300, tokens=4, switches=None)
    prompted(run, 300, tokens=4, switches=9, math=False)
    assert causes(memory, run, 3) == ["prefill"] * 3


def test_without_a_baseline_no_host_is_named(memory: Store) -> None:
    run = reading(3, 10)
    prompted(run, 300, tokens=4, switches=9)
    assert causes(memory, run, 1) == ["prefill"]


# --- baselines ---


def test_four_steps_alike_are_no_baseline_and_twenty_make_a_fit(memory: Store) -> None:
    run = calm(4)
    run.step(90, [*decoding(1, 2), (9, "prefill", 64, 0)])
    gap = found(memory, run.write(memory))[-1]
    assert (gap["baseline_s"], gap["baseline_from"], gap["inflation"]) == (None, None, None)
    assert gap["cause"] == "prefill"

    fitted = Run()
    for k in range(24):
        context = 100 + 40 * (k % 12)  # at most two of them are within 10% of each other
        batch = 2 + k // 12
        took = 4 + 3 * batch + (batch * (context + 1)) // 100
        fitted.step(took, decoding(*range(batch), context=context))
    fitted.step(90, [*decoding(0, 1, context=520), (9, "prefill", 64, 0)])
    gap = found(memory, fitted.write(memory))[-1]
    assert gap["baseline_from"] == "fit"
    assert gap["baseline_s"] == pytest.approx((4 + 6 + 10.42) / 1e3, rel=0.06)


def test_a_fit_is_not_believed_far_from_what_it_saw(memory: Store) -> None:
    run = calm(30)
    run.step(60, [*decoding(1, 2, 3, 4), (9, "prefill", 64, 0)])
    assert found(memory, run.write(memory))[-1]["baseline_from"] is None


def test_a_source_without_sequence_steps_has_gaps_and_nothing_else(memory: Store) -> None:
    run = calm(6)
    run.step(90, [*decoding(1, 2), (9, "prefill", 64, 0)])
    gaps = found(memory, run.write(memory, sequence_steps=False))
    assert len(gaps) == 12
    assert {g["cause"] for g in gaps} == {None}
    assert {g["baseline_s"] for g in gaps} == {None}


def test_a_pause_is_nobodys_fault(memory: Store) -> None:
    run = calm(6)
    run.events = [an_event(run.now_ms * MS, "pause"), an_event((run.now_ms + 500) * MS, "resume")]
    run.now_ms += 500
    run.step(10, decoding(1, 2))
    gap = found(memory, run.write(memory))[-1]
    assert gap["inflation"] == pytest.approx(1.0)


# --- against loops ---


def a_random_run(seed: int) -> Run:
    rng, run = random.Random(seed), Run()
    for _ in range(160):
        batch = rng.choice((3, 3, 3, 9, 10, 11))
        rows = [(r, "decode", 1, rng.randint(90, 130)) for r in range(batch)]
        if rng.random() < 0.2:
            rows = rows[: rng.choice((0, batch))]
            prompts = rng.sample((90, 91, 92), rng.randint(1, 2))
            kind = rng.choice(("prefill", "recompute"))
            rows += [(r, kind, rng.randint(1, 50), rng.randint(0, 60)) for r in prompts]
        flops = (rng.randint(1, 10**12), rng.randint(1, 10**12))
        run.step(rng.randint(8, 40), rows, rng.choice((0, 0, 0, 1)), flops)
    return run


def expected(run: Run) -> tuple[dict[tuple[int, int], Any], dict[tuple[int, int, int], float]]:
    """Baseline and culprits' shares of each gap, by the words of design.md."""
    by_step: dict[int, list[SequenceStepRecord]] = defaultdict(list)
    for row in run.rows:
        by_step[row.step].append(row)
    load = {
        s: (
            sum(r.phase == "decode" for r in rows),
            sum(r.context_tokens for r in rows if r.phase == "decode"),
        )
        for s, rows in by_step.items()
    }
    alone = [s for s in run.steps if s.phase == "decode"]
    baselines: dict[tuple[int, int], Any] = {}
    shares: dict[tuple[int, int, int], float] = {}
    last: dict[int, int] = {}
    for message in run.tokens:
        batch, kv = load.get(message.step, (0, 0))
        like = [
            s.t_step_s
            for s in alone
            if abs(load[s.step][0] - batch) <= batch / 10 and abs(load[s.step][1] - kv) <= kv / 10
        ]
        for request in message.request_ids:
            if request in last:
                key = (request, message.step)
                baselines[key] = median(like) if len(like) >= 5 else None
                flops = _flops_between(run, by_step, last[request], message.step)
                for culprit, value in flops.items():
                    shares[(*key, culprit)] = value / sum(flops.values())
            last[request] = message.step
    return baselines, shares


def _flops_between(
    run: Run, by_step: dict[int, list[SequenceStepRecord]], after: int, until: int
) -> dict[int, float]:
    out: dict[int, float] = defaultdict(float)
    for number in range(after + 1, until + 1):
        rows, step = by_step[number], run.steps[number]
        tokens = sum(r.tokens for r in rows)
        attended = {
            r.request_id: sum(r.computed_context_tokens + i + 1 for i in range(r.tokens))
            for r in rows
        }
        for r in rows:
            if r.phase in ("prefill", "recompute"):
                linear = step.linear_flops * r.tokens / tokens
                attention = step.attention_flops * attended[r.request_id] / sum(attended.values())
                out[r.request_id] += linear + attention
    return out


@pytest.mark.parametrize("seed", range(4))
def test_baselines_and_shares_equal_loops(memory: Store, seed: int) -> None:
    run = a_random_run(seed)
    run_id = run.write(memory)
    baselines, shares = expected(run)
    gaps = found(memory, run_id)
    assert {(g["request_id"], g["step"]) for g in gaps} == set(baselines)
    medians = 0
    for gap in gaps:
        wanted = baselines[gap["request_id"], gap["step"]]
        assert (gap["baseline_from"] == "median") == (wanted is not None)
        if wanted is not None:
            medians += 1
            assert gap["baseline_s"] == pytest.approx(wanted)
            assert gap["interference_s"] == pytest.approx(gap["itl_s"] - wanted)
    assert medians > 300
    blame = found(memory, run_id, "blame")
    prompted = {(r, s) for r, s, _ in shares}
    causes = {(g["request_id"], g["step"]): g["cause"] for g in gaps}
    assert all((c == "prefill") <= (key in prompted) for key, c in causes.items())
    assert all(c != "unexplained" or key not in prompted for key, c in causes.items())
    assert len(blame) > 50
    for row in blame:
        key = (row["request_id"], row["step"], row["culprit_id"])
        assert row["share"] == pytest.approx(shares[key])
