"""The modelled backend under the real engine: times by hand, answers, and honest records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from engine.backends.synthetic import SENTENCES
from engine.build_modelled import build_modelled_engine
from engine.built import BuiltEngine
from engine.config import EngineConfig
from engine.engine import Engine
from engine.physics.cost import ChunkWork, count_step
from engine.request import Request, SamplingParams
from tests.engine.recording import Recording

SCHEDULERS = ("no-batching", "static", "continuous", "chunked")
OVERHEAD_S = 200e-6


def built(recording: Recording, **changes: Any) -> BuiltEngine:
    usual: dict[str, Any] = {"model": "llama-3.1-8b", "device": "h100-sxm", "max_batch": 8}
    usual["overhead_s"] = OVERHEAD_S
    config = EngineConfig(backend="modelled", **{**usual, **changes})
    return build_modelled_engine(config, recording, recording.messages.append, lambda *_: None)


def ask(made: BuiltEngine, prompts: Sequence[str], tokens: int = 40, **params: Any) -> list[int]:
    now = made.engine.clock.now_ns()
    asked = []
    for prompt in prompts:
        ids = tuple(made.tokenizer.encode(prompt))
        request = Request(ids, SamplingParams(tokens, **params), now)
        asked.append(made.engine.submit(request))
    return asked


def run_all(engine: Engine, limit: int = 5000) -> None:
    """Step until nothing is left and the books balance; nobody really waits."""
    for _ in range(limit):
        if not engine.has_work:
            engine.check_integrity()
            return
        if not engine.step():
            engine.clock.idled(engine.scheduler.wake_ns())
    pytest.fail(f"work is left after {limit} steps")


def test_a_step_takes_what_the_cost_model_says() -> None:
    recording = Recording()
    made = built(recording)
    (request,) = ask(made, ["one two three"], tokens=5)
    run_all(made.engine)
    prompt = recording.requests[request].prompt_tokens
    decode = recording.steps[2]
    cost = count_step(made.spec, [ChunkWork(1, prompt + 1, sampled=1)], "bf16", "bf16")
    assert (decode.flops, decode.weight_bytes) == (cost.flops, cost.weight_bytes)
    memory_s, compute_s = cost.bytes / 3350e9, cost.flops / 989e12
    assert decode.t_memory_s == pytest.approx(memory_s)
    assert decode.t_compute_s == pytest.approx(compute_s)
    assert decode.forward_s == pytest.approx(memory_s / 0.85, abs=3e-9)
    assert decode.t_step_s == pytest.approx(memory_s / 0.85 + OVERHEAD_S, abs=5e-9)
    assert decode.t_host_s == pytest.approx(OVERHEAD_S, abs=5e-9)
    assert decode.mbu == pytest.approx(memory_s / decode.t_step_s)


def test_nothing_but_steps_and_waiting_moves_the_clock() -> None:
    recording = Recording()
    made = built(recording, scheduler="chunked", chunk_tokens=32)
    start_ns = made.engine.clock.now_ns()
    ask(made, ["a b c d " * 40, "hello"])
    run_all(made.engine)
    spent_s = sum(step.t_step_s for step in recording.steps)
    assert made.engine.clock.now_ns() - start_ns == pytest.approx(spent_s * 1e9, abs=1)


def test_no_step_beats_its_floor_at_the_datasheets_peaks() -> None:
    recording = Recording()
    made = built(recording, matmul_fraction=1.0, bandwidth_fraction=1.0, overhead_s=0.0)
    ask(made, ["tell me a story " * n for n in range(1, 30)])
    run_all(made.engine)
    assert min(s.t_overhead_s for s in recording.steps if s.t_overhead_s is not None) >= 0
    assert [e for e in recording.events if e.kind == "peak_beaten"] == []


@pytest.mark.parametrize("changes", [{"prefix_cache": True}, {"kv_blocks": 24}, {}])
def test_answers_are_the_same_under_every_schedule(changes: dict[str, Any]) -> None:
    answers = []
    for scheduler in SCHEDULERS:
        recording = Recording()
        made = built(recording, scheduler=scheduler, chunk_tokens=48, **changes)
        ask(
            made,
            [f"{word} " * (5 + 7 * n) for n, word in enumerate(["why", "is", "the", "sky", "so"])],
        )
        ask(made, ["short"], tokens=3)
        run_all(made.engine)
        answers.append(recording.tokens)
    assert answers[0] == answers[1] == answers[2] == answers[3]
    assert [len(tokens) for tokens in answers[0].values()] == [40] * 5 + [3]


def test_an_answer_is_readable_and_says_what_it_is() -> None:
    recording = Recording()
    made = built(recording)
    asked = ask(made, ["one", "two", "three", "four"], tokens=400)
    run_all(made.engine)
    texts = [made.tokenizer.decode(recording.tokens[request]) for request in asked]
    assert all("This text is synthetic." in text for text in texts)
    assert all(any(text.strip().startswith(s) for s in SENTENCES) for text in texts)
    assert len(set(texts)) > 1, "different prompts begin elsewhere"


def test_only_length_or_a_stop_text_ends_an_answer() -> None:
    recording = Recording()
    made = built(recording)
    asked = ask(made, ["one", "two"], tokens=300)
    stopped = ask(made, ["three"], tokens=300, stop=("synthetic",))
    run_all(made.engine)
    reasons = [recording.requests[request].finish_reason for request in asked + stopped]
    assert reasons == ["length", "length", "stop"]


def test_what_a_step_cost_on_this_machine_is_nobodys_business() -> None:
    """Switches of the process that simulates say nothing about the device."""
    recording = Recording()
    ask(made := built(recording), ["hello"])
    run_all(made.engine)
    assert {step.involuntary_switches for step in recording.steps} == {None}


def test_the_run_says_modelled_with_all_that_shaped_it() -> None:
    made = built(Recording(), dtype="fp8", math_dtype="fp8", device="b200", tensor_parallel=2)
    run, details = made.run, json.loads(made.run.config)
    assert (run.clock, run.backend, run.peaks_source) == ("modelled", "modelled", "datasheet")
    assert run.device == "2 x NVIDIA B200 180 GB"
    assert (run.model, run.dtype, run.kv_dtype) == ("llama-3.1-8b", "fp8", "bf16")
    assert run.peak_bandwidth == 2 * details["assumptions"]["bandwidth"]
    assert details["assumptions"]["formula"].startswith("t_step = max(")
    assert details["spec"]["layers"] == 32
    assert details["tokens"] == "synthetic"


def test_experts_and_latents_run_too() -> None:
    for model, parallel in (("mixtral-8x7b", 2), ("deepseek-v3", 16)):
        recording = Recording()
        made = built(recording, model=model, tensor_parallel=parallel, dtype="fp8")
        ask(made, ["hello there"] * 3, tokens=4)
        run_all(made.engine)
        assert recording.steps[-1].t_step_s > OVERHEAD_S
        assert all(reason.finish_reason == "length" for reason in recording.requests.values())
