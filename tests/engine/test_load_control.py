"""The load of a running engine: what is replaced, what still counts, and what a burst may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clock import ModelledClock
from engine.errors import UserError
from engine.load_control import LoadControl
from engine.messages import Load
from engine.workloads import load_workload
from engine.workloads.generator import LoadGenerator
from engine.workloads.prompts import PromptSource
from telemetry.clock import NS_PER_S, now_ns

CONTEXT = 2048


class Words:
    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]


@pytest.fixture
def control() -> LoadControl:
    return LoadControl(PromptSource(Words()), CONTEXT)


def submit_due(control: LoadControl, first: int) -> list[int]:
    ids = list(range(first, first + len(control.due())))
    for request_id in ids:
        control.submitted(request_id)
    return ids


def test_streams_of_an_earlier_load_count_until_they_end(control: LoadControl) -> None:
    """Ramping a closed loop from 4 to 6 streams adds two, not six."""
    assert control.start(Load("steady", concurrency=4)) == []
    before = submit_due(control, 0)
    assert len(before) == 4
    assert control.start(Load("steady", concurrency=6)) == before
    assert len(submit_due(control, 10)) == 2
    control.ended(before[0])
    assert len(submit_due(control, 20)) == 1


def test_a_bounded_load_is_done_without_those_of_an_earlier_one(control: LoadControl) -> None:
    control.start(Load("steady", concurrency=2))
    submit_due(control, 0)
    control.start(Load("skew", requests=1))
    (mine,) = submit_due(control, 10)
    assert control.done is None
    control.ended(mine)
    assert control.done == 1


def test_a_refused_load_changes_nothing(control: LoadControl) -> None:
    control.start(Load("steady", concurrency=2))
    with pytest.raises(UserError, match="unknown workload"):
        control.start(Load("stedy"))
    assert control.load == Load("steady", concurrency=2)


def test_the_clock_stands_still_while_paused(control: LoadControl) -> None:
    control.start(Load("steady", rate=1000.0))
    t_ns = now_ns()
    control.pause(t_ns)
    control.resume(t_ns + 3600 * NS_PER_S)
    assert control.due() == []


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_at_one_instant_come_again_every_second(tmp_path: Path, rows: int) -> None:
    file = tmp_path / "burst.jsonl"
    file.write_text('{"timestamp": 5, "input_length": 4, "output_length": 2}\n' * rows)
    generator = LoadGenerator(
        load_workload(str(file), seed=0),
        PromptSource(Words()),
        concurrency=None,
        rate=None,
        requests=None,
        seed=0,
        max_context=CONTEXT,
    )
    assert [len(generator.poll(t, 0)) for t in (0.0, 0.9, 1.0, 2.5)] == [rows, 0, rows, rows]


def test_one_call_never_takes_long(control: LoadControl) -> None:
    generator = LoadGenerator(
        load_workload("steady", seed=0),
        PromptSource(Words()),
        concurrency=None,
        rate=1000.0,
        requests=None,
        seed=0,
        max_context=CONTEXT,
    )
    assert len(generator.poll(1e6, 0)) == 1024


def test_an_absurd_length_is_refused_before_a_prompt_is_built(
    tmp_path: Path, control: LoadControl
) -> None:
    file = tmp_path / "huge.jsonl"
    file.write_text('{"timestamp": 0, "input_length": 10000000000, "output_length": 2}\n')
    with pytest.raises(UserError, match="line 1: prompt of 10000000000 tokens"):
        control.start(Load(str(file)))


def test_an_absurd_rate_is_refused(control: LoadControl) -> None:
    with pytest.raises(UserError, match="more than 0 and at most 1,000 requests/s"):
        control.start(Load("steady", rate=1e7))


def test_a_clock_that_jumps_to_an_arrival_finds_it(tmp_path: Path) -> None:
    """Whatever the digits of a recorded time: no instant may be just before it for ever."""
    file = tmp_path / "odd.jsonl"
    times = [0, 4123.4567891, 4123.4567899, 10_000_000.1, 33_333_333.333333, 86_400_000.7]
    rows = (f'{{"timestamp": {t}, "input_length": 4, "output_length": 2}}' for t in times)
    file.write_text("\n".join(rows))
    clock = ModelledClock(1_234_567_891, paced=False)
    control = LoadControl(PromptSource(Words()), CONTEXT, clock)
    control.start(Load(str(file), requests=len(times)))
    found = len(submit_due(control, 0))
    for _ in range(len(times)):
        clock.idled(control.next_arrival_ns())
        found += len(submit_due(control, found))
    assert found == len(times)


def test_a_trace_is_scaled_to_fit_unless_it_must_be_as_recorded() -> None:
    fitted = load_workload("mooncake", seed=0)
    recorded = load_workload("mooncake", seed=0, as_recorded=True)
    assert recorded.scale is None
    assert "as recorded" in recorded.description
    assert recorded.item(3).prompt_tokens == pytest.approx(16 * fitted.item(3).prompt_tokens, abs=8)
    control = LoadControl(PromptSource(Words()), 131_072, as_recorded=True)
    control.start(Load("azure-code", concurrency=1))
    assert control.settings["scale"] is None
