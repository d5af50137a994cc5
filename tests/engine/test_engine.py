"""Stopping, cancelling, refusing, and what every step says of itself."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.backends.cpu import CPUBackend
from engine.models.weights import ModelSource
from engine.physics.cost import ChunkWork, count_step
from engine.request import Request, RequestError, SamplingParams
from engine.schedulers import SCHEDULERS
from telemetry.clock import NS_PER_S, now_ns
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
