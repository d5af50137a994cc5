"""Stopping, cancelling, refusing, and what every step says of itself."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from engine.backends.cpu import CPUBackend
from engine.engine import Engine
from engine.errors import UserError
from engine.models.weights import ModelSource
from engine.physics.cost import ChunkWork, count_step
from engine.request import Request, RequestError, SamplingParams
from engine.schedulers import SCHEDULERS
from telemetry.clock import NS_PER_S, now_ns, sleep_s
from tests.engine.conftest import PEAKS, MakeEngine
from tests.engine.recording import run_all

PROMPT = "Write one sentence about the sea."


def ask(source: ModelSource, **sampling: object) -> Request:
    params = SamplingParams(**sampling)  # type: ignore[arg-type]
    return Request(tuple(source.tokenizer.encode_chat(PROMPT)), params, label="prompt")


def test_a_chat_answer_is_english_and_ends_by_itself(
    smollm: ModelSource, smollm_fp32: CPUBackend, make_engine: MakeEngine
) -> None:
    engine, recording = make_engine(smollm, smollm_fp32)
    engine.submit(ask(smollm, max_tokens=120))
    run_all(engine)
    assert recording.requests[0].finish_reason == "stop"
    assert recording.tokens[0][-1] in smollm.tokenizer.eos_token_ids
    text = smollm.tokenizer.decode(recording.tokens[0])
    assert "<|" not in text
    assert len(set(text.lower().split()) & {"the", "of", "and", "a", "is", "sea", "ocean"}) >= 3


def test_length_and_ignored_eos(
    smollm: ModelSource, smollm_fp32: CPUBackend, make_engine: MakeEngine
) -> None:
    engine, recording = make_engine(smollm, smollm_fp32)
    engine.submit(ask(smollm, max_tokens=5))
    engine.submit(ask(smollm, max_tokens=130, ignore_eos=True))
    run_all(engine)
    assert recording.requests[0].finish_reason == recording.requests[1].finish_reason == "length"
    assert (recording.requests[0].output_tokens, recording.requests[1].output_tokens) == (5, 130)


def test_a_stop_string_across_tokens_ends_the_answer(
    smollm: ModelSource, smollm_fp32: CPUBackend, make_engine: MakeEngine
) -> None:
    engine, recording = make_engine(smollm, smollm_fp32)
    engine.submit(ask(smollm, max_tokens=60, ignore_eos=True))
    run_all(engine)
    text = smollm.tokenizer.decode(recording.tokens[0])
    stop = text[20:27]
    engine, recording = make_engine(smollm, smollm_fp32)
    engine.submit(ask(smollm, max_tokens=60, ignore_eos=True, stop=(stop,)))
    run_all(engine)
    stopped = smollm.tokenizer.decode(recording.tokens[0])
    assert recording.requests[0].finish_reason == "stop"
    assert stop in stopped
    assert text.startswith(stopped)
    assert len(recording.tokens[0]) < 20


def test_sampling_is_seeded_and_independent_of_the_batch(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    def draw(seed: int | None, neighbours: int) -> list[int]:
        engine, recording = make_engine(tiny, blocks=64)
        params = SamplingParams(20, temperature=1.0, top_p=0.9, seed=seed, ignore_eos=True)
        engine.submit(Request((5, 6, 7), params))
        for _ in range(neighbours):
            engine.submit(Request((8, 9), SamplingParams(10, temperature=0.5, ignore_eos=True)))
        run_all(engine)
        return recording.tokens[0]

    assert draw(1, 0) == draw(1, 5)
    assert draw(1, 0) != draw(2, 0)


def test_a_temperature_near_zero_is_greedy(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny, blocks=64)
    for temperature in (0.0, 1e-40):
        engine.submit(Request((5, 6), SamplingParams(9, temperature, ignore_eos=True)))
    run_all(engine)
    assert recording.tokens[0] == recording.tokens[1]


def test_cancelling_frees_everything(tiny: ModelSource, make_engine: MakeEngine) -> None:
    for scheduler in ("continuous", "static"):
        engine, recording = make_engine(tiny, scheduler=scheduler, max_batch=2, blocks=64)
        ids = [
            engine.submit(Request((5, 6), SamplingParams(30, ignore_eos=True))) for _ in range(3)
        ]
        for _ in range(4):
            engine.step()
        assert engine.cancel(ids[0])
        assert engine.cancel(ids[2]), "it still waits"
        assert not engine.cancel(ids[0])
        run_all(engine)
        reasons = [recording.requests[i].finish_reason for i in ids]
        assert reasons == ["cancelled", "length", "cancelled"]
        assert engine.queue.blocks.num_free == 64
        assert len(recording.tokens[ids[1]]) == 30


def test_what_can_never_run_is_refused_with_the_arithmetic(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    engine, _ = make_engine(tiny, blocks=4)
    with pytest.raises(RequestError, match=r"500 tokens \+ 20 to generate = 520.* context is 512"):
        engine.submit(Request((5,) * 500, SamplingParams(20)))
    with pytest.raises(RequestError, match="need 5 KV blocks of 16, but the cache has 4"):
        engine.submit(Request((5,) * 60, SamplingParams(10)))
    with pytest.raises(RequestError, match="the prompt is empty"):
        engine.submit(Request((), SamplingParams(10)))
    assert not engine.has_work


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.5),
    ],
)
def test_settings_that_cannot_be_are_refused(field: str, value: float) -> None:
    with pytest.raises(RequestError, match=f"{field} is {value}: use"):
        SamplingParams(**{field: value})  # type: ignore[arg-type]


def test_a_refused_setting_changes_nothing(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny, blocks=64)
    with pytest.raises(UserError, match="unknown scheduler"):
        engine.configure(scheduler="fastest")
    for bad, message in (
        ({"max_batch": 0}, "max batch is 0: use 1 to"),
        ({"chunk_tokens": 0}, "token budget is 0: use 1 to"),
        ({"kv_blocks": 0}, "KV blocks is 0: use 1 to 64"),
        ({"kv_blocks": 65}, "KV blocks is 65: use 1 to 64"),
    ):
        with pytest.raises(UserError, match=message):
            engine.configure(scheduler="static", prefix_cache=True, **bad)  # type: ignore[arg-type]
    assert engine.scheduler.name == "continuous"
    queue = engine.queue
    assert (queue.max_batch, queue.chunk_tokens) == (8, 256)
    assert (queue.blocks.prefix_cache, queue.blocks.num_blocks) == (False, 64)
    assert recording.events == []


def test_fewer_blocks_than_a_live_request_can_need_are_refused(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    engine, recording = make_engine(tiny, blocks=64)
    long = engine.submit(Request((5,) * 60, SamplingParams(100)))
    engine.submit(Request((5,) * 6, SamplingParams(10)))
    arithmetic = (
        r"KV blocks is 9, but request 0 \(prompt of 60 tokens \+ 100 to generate\) needs 10 of 16: "
        "use 10 to 64, or wait"
    )
    with pytest.raises(UserError, match=arithmetic):
        engine.configure(kv_blocks=9)
    assert engine.queue.blocks.num_blocks == 64
    engine.cancel(long)
    engine.configure(kv_blocks=9)
    with pytest.raises(RequestError, match="need 10 KV blocks of 16, but 9 of the cache's 64 are"):
        engine.submit(Request((5,) * 60, SamplingParams(100)))
    assert [e.kind for e in recording.events] == ["kv_blocks"]
    run_all(engine)
    assert {s.kv_blocks_total for s in recording.steps} == {9}


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_every_step_accounts_for_itself(
    tiny: ModelSource, make_engine: MakeEngine, scheduler: str
) -> None:
    engine, recording = make_engine(tiny, scheduler=scheduler, max_batch=3, blocks=64)
    for prompt, output in ((9, 4), (3, 1), (6, 7), (2, 5)):
        engine.submit(Request((5,) * prompt, SamplingParams(output, ignore_eos=True)))
    run_all(engine)
    steps = recording.steps
    assert [s.step for s in steps] == list(range(len(steps)))
    for step, rows in zip(steps, recording.sequences, strict=True):
        parts = step.schedule_s + step.prepare_s + step.forward_s + step.sample_s
        assert parts == pytest.approx(step.t_step_s, abs=4e-9)
        assert step.t_host_s == pytest.approx(parts - step.forward_s, abs=4e-9)
        assert step.t_compute_s == pytest.approx(step.flops / PEAKS.flops)
        assert step.t_overhead_s == pytest.approx(step.t_inefficiency_s + step.t_host_s, abs=4e-9)
        assert step.linear_flops + step.attention_flops + step.head_flops == step.flops
        assert sum(rows.tokens) == (
            step.prefill_tokens + step.decode_tokens + step.padded_prefill_tokens
            + step.padded_slots
        )  # fmt: skip
        assert step.n_running + step.padded_slots <= step.batch_slots
        assert len(set(rows.slot)) == len(rows.slot)
        assert (
            step.phase
            == {
                (True, False): "prefill",
                (False, True): "decode",
                (True, True): "mixed",
            }[step.prefill_tokens > 0, step.decode_tokens + step.padded_slots > 0]
        )
    # While work waits, a step starts where the last one ended.
    ends = [s.t_start_ns + round(s.t_step_s * NS_PER_S) for s in steps]
    waited = [s.t_start_ns for s in steps[1:]]
    assert [abs(a - b) <= 1 for a, b in zip(ends[:-1], waited, strict=True)].count(False) <= (
        1 if scheduler == "static" else 0  # the last, incomplete cohort waits for its window
    )


def test_recorded_flops_are_those_of_the_rows_that_ran(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    engine, recording = make_engine(tiny, scheduler="static", max_batch=2, blocks=64)
    engine.submit(Request((5,) * 6, SamplingParams(1, ignore_eos=True)))
    engine.submit(Request((5,) * 2, SamplingParams(2, ignore_eos=True)))
    run_all(engine)
    spec = tiny.config.spec()
    first = count_step(spec, [ChunkWork(6, 0, 0, 1), ChunkWork(2, 0, 4, 1)], "fp32", "fp32")
    second = count_step(spec, [ChunkWork(1, 6, 0, 1, True), ChunkWork(1, 2, 0, 1)], "fp32", "fp32")
    for step, cost in zip(recording.steps, (first, second), strict=True):
        assert (step.flops, step.padded_flops) == (cost.flops, cost.padded_flops)
        assert (step.weight_bytes, step.kv_read_bytes) == (cost.weight_bytes, cost.kv_read_bytes)
    assert recording.steps[1].padded_slots == 1
    assert recording.sequences[1].phase == ["padded", "decode"]


def test_nobody_is_admitted_before_arriving(tiny: ModelSource, make_engine: MakeEngine) -> None:
    """A step starts where the last one ended, which is before what arrived in between."""
    engine, recording = make_engine(tiny, max_batch=4, blocks=64)
    engine.submit(Request((5, 6), SamplingParams(6, ignore_eos=True), now_ns()))
    engine.step()
    engine.submit(Request((5, 6), SamplingParams(6, ignore_eos=True), now_ns()))
    run_all(engine)
    for record in recording.requests.values():
        assert record.admitted_ns is not None
        assert record.admitted_ns >= record.arrived_ns


def test_only_waiting_requests_can_be_withdrawn(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny, max_batch=1, blocks=64)
    runs, waits = (
        engine.submit(Request((5, 6), SamplingParams(4, ignore_eos=True))) for _ in range(2)
    )
    engine.step()
    assert [engine.withdraw(i) for i in (runs, waits, 99)] == [False, True, False]
    run_all(engine)
    reasons = [recording.requests[i].finish_reason for i in (runs, waits)]
    assert reasons == ["length", "cancelled"]


def test_latencies_come_from_the_tokens(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny, max_batch=2, blocks=64)
    for output in (1, 5, 9):
        engine.submit(Request((5, 6), SamplingParams(output, ignore_eos=True)))
    run_all(engine)
    stamps: dict[int, list[int]] = {}
    for message in recording.messages:
        for request_id in message.request_ids:
            stamps.setdefault(request_id, []).append(message.t_ns)
    for request_id, times in stamps.items():
        record = recording.requests[request_id]
        assert (record.first_token_ns, record.finished_ns) == (times[0], times[-1])
        gaps = sum(b - a for a, b in pairwise(times))
        assert gaps == times[-1] - times[0]
        assert record.arrived_ns <= record.admitted_ns < times[0]  # type: ignore[operator]


def test_blocks_are_recorded_as_they_change_hands(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    """The map at a step shows as many used and cached blocks as the step counts."""
    engine, recording = make_engine(tiny, max_batch=2, blocks=12, prefix_cache=True)
    engine.submit(Request((5, 6) * 20, SamplingParams(60, ignore_eos=True)))
    engine.step()
    for first in (5, 7, 9, 5):
        tokens = (first, 6) * 15
        engine.submit(Request(tokens, SamplingParams(30, ignore_eos=True)))
    run_all(engine)
    state: dict[int, str] = {}
    changes = iter(recording.block_changes)
    change = next(changes)
    for step in recording.steps:
        while change.step <= step.step:
            state[change.block] = change.state
            assert (change.request_id is None) == (change.state != "used")
            assert (change.references > 0) == (change.state == "used")
            change = next(changes)
        counts = [list(state.values()).count(s) for s in ("used", "cached")]
        assert counts == [step.kv_blocks_used, step.kv_blocks_cached]
    for last in (change, *changes):
        assert last.step == len(recording.steps), "given back at the end of the last step"
        state[last.block] = last.state
    assert set(state.values()) == {"free", "cached"}
    assert max(c.references for c in recording.block_changes) == 2
    assert sum(s.evictions for s in recording.steps) > 0


def test_a_switch_is_marked(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny, blocks=64)
    engine.submit(Request((5, 6), SamplingParams(6, ignore_eos=True)))
    engine.step()
    engine.configure(scheduler="static")
    engine.configure(scheduler="static")
    run_all(engine)
    (event,) = recording.events
    assert (event.kind, event.step) == ("scheduler_switch", 0)
    assert json.loads(event.detail) == {"from": "continuous", "to": "static"}
    assert [s.scheduler for s in recording.steps] == ["continuous"] + ["static"] * 5


def test_every_change_is_an_event_of_its_own(tiny: ModelSource, make_engine: MakeEngine) -> None:
    engine, recording = make_engine(tiny, blocks=64)
    changes = {
        "scheduler": ("continuous", "chunked"),
        "max_batch": (8, 3),
        "chunk_tokens": (256, 7),
        "prefix_cache": (False, True),
        "kv_blocks": (64, 30),
    }
    wanted = {name: new for name, (_, new) in changes.items()}
    for _ in range(2):  # the second time nothing changes
        engine.configure(**wanted)  # type: ignore[arg-type]
    found = {e.kind: tuple(json.loads(e.detail).values()) for e in recording.events}
    assert found.pop("scheduler_switch") == changes.pop("scheduler")
    assert found == changes
    assert len(recording.events) == 5


def many(engine: Engine, count: int = 5) -> dict[int, tuple[int, ...]]:
    """Requests with a shared beginning that need 5 blocks each; prompts by request id."""
    rng = random.Random(5)
    shared = tuple(rng.choices(range(100, 40_000), k=37))
    prompts = [shared + tuple(rng.choices(range(100, 40_000), k=9)) for _ in range(count)]
    return {engine.submit(Request(p, SamplingParams(30, ignore_eos=True))): p for p in prompts}


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_preemption_changes_no_token_and_is_accounted_for(
    tiny: ModelSource, make_engine: MakeEngine, scheduler: str, prefix_cache: bool
) -> None:
    """Twelve blocks for five requests of five: those who give way emit no token twice."""
    calm, undisturbed = make_engine(tiny, blocks=64)
    many(calm)
    run_all(calm)
    engine, recording = make_engine(
        tiny,
        scheduler=scheduler,
        max_batch=4,
        blocks=12,
        chunk_tokens=16,
        prefix_cache=prefix_cache,
    )
    prompts = many(engine)
    run_all(engine)
    assert recording.tokens == undisturbed.tokens
    steps, events = recording.steps, [e for e in recording.events if e.kind == "preempt"]
    preemptions = sum(r.preemptions for r in recording.requests.values())
    assert preemptions == len(events) == sum(s.preemptions for s in steps)
    assert (preemptions > 0) == (scheduler in ("continuous", "chunked"))
    recomputed = sum(s.recomputed_tokens for s in steps)
    assert (recomputed > 0) == (preemptions > 0) or prefix_cache  # which may hold all of it
    lost = [json.loads(e.detail) for e in events]
    assert all(d["computed_tokens"] <= d["blocks"] * 16 for d in lost)
    cached = sum(r.cached_tokens for r in recording.requests.values())
    assert cached == sum(s.prefix_hit_tokens for s in steps)
    assert (cached > 0) == prefix_cache
    prompt_tokens = sum(len(p) for p in prompts.values())
    assert sum(s.prefill_tokens for s in steps) + cached == prompt_tokens
    assert sum(s.decode_tokens for s in steps) == len(prompts) * 29
    for step, rows in zip(steps, recording.sequences, strict=True):
        assert rows.phase.count("recompute") == step.recompute_seqs
        assert rows.phase.count("prefill") == step.prefill_seqs
        assert (step.recomputed_flops > 0) == (step.recomputed_tokens > 0)  # type: ignore[operator]
        assert step.phase != "decode" or not step.recomputed_tokens
        assert not step.preemptions or step.limit_bound == "blocks"
    assert engine.queue.blocks.num_free == 12


def test_admitted_and_first_token_stay_those_of_the_first_time(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    engine, recording = make_engine(tiny, max_batch=4, blocks=12)
    many(engine)
    before: dict[int, tuple[int | None, int | None]] = {}
    while not any(e.kind == "preempt" for e in recording.events):
        before = {i: (r.admitted_ns, r.first_token_ns) for i, r in recording.requests.items()}
        engine.step()
    run_all(engine)
    preempted = [i for i, r in recording.requests.items() if r.preemptions]
    assert preempted
    for i in preempted:
        record = recording.requests[i]
        if before[i][1] is not None:
            assert (record.admitted_ns, record.first_token_ns) == before[i]


def test_a_preempted_request_can_be_cancelled_but_is_not_withdrawn(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    engine, recording = make_engine(tiny, max_batch=2, blocks=9)
    many(engine, 3)
    while not engine.queue.waiting or not engine.queue.waiting[0].preemptions:
        engine.step()
    preempted = engine.queue.waiting[0]
    assert recording.tokens[preempted.request_id]
    assert not engine.withdraw(preempted.request_id), "part of its answer has been read"
    assert engine.withdraw(2), "it never ran"
    assert engine.cancel(preempted.request_id)
    run_all(engine)
    reasons = [recording.requests[i].finish_reason for i in range(3)]
    assert reasons == ["length", "cancelled", "cancelled"]
    assert engine.queue.blocks.num_free == 9


def test_sampled_tokens_survive_a_preemption(tiny: ModelSource, make_engine: MakeEngine) -> None:
    """A request's generator is not advanced by computing its tokens again."""
    outputs = []
    for blocks in (64, 9):
        engine, recording = make_engine(tiny, max_batch=2, blocks=blocks)
        for seed in (1, 2):
            params = SamplingParams(60, temperature=0.8, seed=seed, ignore_eos=True)
            engine.submit(Request((5,) * 20, params))
        run_all(engine)
        outputs.append(recording.tokens)
        assert (recording.requests[1].preemptions > 0) == (blocks == 9)
    assert outputs[0] == outputs[1]


def test_changing_everything_while_running_changes_no_token(
    tiny: ModelSource, make_engine: MakeEngine
) -> None:
    calm, undisturbed = make_engine(tiny, blocks=64)
    many(calm, 8)
    run_all(calm)
    engine, recording = make_engine(tiny, max_batch=3, blocks=20)
    many(engine, 8)
    rng = random.Random(3)
    while engine.has_work:
        if not engine.step():
            sleep_s(0.002)
        engine.check_integrity()
        if rng.random() < 0.3:
            engine.configure(
                scheduler=rng.choice(sorted(SCHEDULERS)),
                max_batch=rng.randint(1, 5),
                chunk_tokens=rng.choice((1, 7, 64)),
                prefix_cache=rng.random() < 0.5,
                kv_blocks=rng.randint(5, 20),
            )
    assert recording.tokens == undisturbed.tokens
    assert engine.queue.blocks.num_used == 0
    assert sum(r.preemptions for r in recording.requests.values()) > 0
