"""Preempted and cached sequences in a real engine: their tokens, their marks, their counts."""

from __future__ import annotations

import json

import pytest

from engine.models.weights import ModelSource
from engine.request import Request, SamplingParams
from engine.schedulers import SCHEDULERS
from tests.engine.conftest import MakeEngine
from tests.engine.recording import many, run_all


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
