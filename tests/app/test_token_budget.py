"""The curve of token budgets: what is asked of the replays, what is drawn of them, what is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pandas as pd
import pytest

from app import state
from app.figures.token_budget import Measured, token_budget
from app.live.views import Request, render, version
from app.panels import interference
from app.panels import interference_budget as panel
from app.panels.view import Moment, Replays, View
from app.replay.curve import Curve, Curves, curves, key_of
from app.replay.curve_job import budgets, curve_job
from app.replay.jobs import Jobs, Work
from app.replay.recorded import read_recording
from app.replay.worker import Job, answer
from app.theme import DARK, LIGHT, Theme
from app.units import duration
from engine.errors import UserError
from engine.replay.recording import Arrival, Recording, Settings
from engine.replay.replay import Outcome
from telemetry.batches import table_of, token_table
from telemetry.reader import Reader
from telemetry.schema import EventRecord
from telemetry.store import Store
from tests.app.fake import FakeSession
from tests.app.interfered import interfered, written
from tests.app.synthetic import RUN_ID
from tests.engine.replay import machine
from tests.telemetry.telemetry_records import a_run

MS = 1_000_000
T0 = 10**12
SETTINGS = Settings("continuous", 8, 256, 2000, False)
STREAMS = 6
LONG = Arrival(T0 + 2_000 * MS, 1024, 8, label="inject")


def asked() -> tuple[Arrival, ...]:
    """A closed loop of six streams, and one long prompt among them, by the clock."""
    loop = [Arrival(T0, 60 + 7 * (k % 9), 40 + k % 17, STREAMS, "steady") for k in range(40)]
    return (*loop[:30], LONG, *loop[30:])


def kept(store: Store, outcome: Outcome, streams: int = STREAMS) -> str:
    """An outcome as a recorded run, with the events that a real one has."""
    config = {
        "spec": asdict(machine.SPEC),
        "engine": {
            "scheduler": SETTINGS.scheduler,
            "max_batch": SETTINGS.max_batch,
            "chunk_tokens": SETTINGS.chunk_tokens,
            "prefix_cache": False,
            "block_size": 16,
        },
        "kv_blocks": SETTINGS.kv_blocks,
        "chunk_tokens": SETTINGS.chunk_tokens,
    }
    run_id = store.start_run(
        a_run(
            config=json.dumps(config),
            dtype="bf16",
            kv_dtype="bf16",
            backend="cpu",
            peak_flops=machine.PEAK_FLOPS,
            peak_bandwidth=machine.PEAK_BANDWIDTH,
            ttft_slo_s=1.0,
            tpot_slo_s=0.1,
        )
    )
    load = {"workload": "steady", "concurrency": streams, "seed": 0, "max_context": 8192}
    events = [*outcome.events, EventRecord(T0, None, "load", json.dumps(load))]
    tables = {
        "steps": table_of("steps", outcome.steps),
        "requests": table_of("requests", list(outcome.requests.values())),
        "events": table_of("events", events),
        "tokens": token_table(outcome.tokens),
    }
    store.append(run_id, tables)
    store.flush()
    return run_id


@pytest.fixture(scope="module")
def truth() -> Outcome:
    return machine.run(machine.blank(asked()), SETTINGS, machine.Machine())


@pytest.fixture(scope="module")
def recorded(truth: Outcome) -> Iterator[tuple[Reader, str]]:
    store = Store(None)
    run_id = kept(store, truth)
    yield store.reader(), run_id
    store.close()


@pytest.fixture(scope="module")
def result(recorded: tuple[Reader, str]) -> dict[str, Any]:
    """Of three budgets, to be quick."""
    reader, run_id = recorded
    job, facts = curve_job(reader, (run_id, "", ""))
    assert job.grid is not None
    few = replace(job, grid=replace(job.grid, chunk_tokens=(16, 64, 1024)))
    return {**facts, **answer(few, lambda done, total: None)}


def point(result: dict[str, Any], budget: int) -> dict[str, float]:
    """The row of a budget."""
    rows = panel.rows_of(result)
    found = rows[rows["budget"] == budget].to_dict("records")[0]
    return {str(name): float(value) for name, value in found.items()}


def worst(outcome: Outcome) -> float:
    """The longest time between two tokens of a request, s."""
    last: dict[int, int] = {}
    longest = 0
    for message in outcome.tokens:
        for request in message.request_ids:
            longest = max(longest, message.t_ns - last.get(request, message.t_ns))
            last[request] = message.t_ns
    return longest / 1e9


# --- what is asked ---


def test_measured_is_what_the_recording_says(result: dict[str, Any], truth: Outcome) -> None:
    measured = result["measured"]
    assert measured["worst_s"] == pytest.approx(worst(truth))
    ttft = [r.first_token_ns - r.arrived_ns for r in truth.requests.values() if r.first_token_ns]
    assert measured["ttft_worst_s"] == pytest.approx(max(ttft) / 1e9)
    assert measured["ttft_s"] == pytest.approx(sorted(ttft)[len(ttft) // 2] / 1e9, rel=0.1)
    assert (measured["scheduler"], result["requests"]) == ("continuous", 41)


@pytest.mark.parametrize("budget", [16, 64, 1024])
def test_a_predicted_budget_is_what_then_happens(result: dict[str, Any], budget: int) -> None:
    settings = SETTINGS.changed(scheduler="chunked", chunk_tokens=budget)
    then = machine.run(machine.blank(asked()), settings, machine.Machine())
    row = point(result, budget)
    assert row["worst_s"] == pytest.approx(worst(then), rel=0.1)
    assert row["worst_s_low"] <= row["worst_s"] <= row["worst_s_high"]


def test_a_small_budget_trades_the_worst_gap_for_the_first_token(result: dict[str, Any]) -> None:
    small, large = point(result, 64), point(result, 1024)
    assert large["worst_s"] > 3 * small["worst_s"]
    assert small["ttft_worst_s"] > large["ttft_worst_s"]


def test_budgets_give_every_slot_a_token() -> None:
    assert budgets(8) == (16, 32, 64, 128, 256, 512, 1024)
    assert budgets(64)[0] == 64
    assert budgets(256) == (256, 512, 1024, 2048)


def _job(recorded: tuple[Reader, str], first: str = "", last: str = "") -> tuple[Job, Any]:
    return curve_job(recorded[0], (recorded[1], first, last))


def test_a_long_run_replays_what_lies_around_the_injection(
    recorded: tuple[Reader, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.replay.curve_job._STEPS", 0)
    monkeypatch.setattr("app.replay.curve_job._LEAST_REQUESTS", 12)
    job, facts = _job(recorded)
    arrivals = job.recording.arrivals
    assert facts["requests"] == len(arrivals) == 12
    assert [a.prompt_tokens for a in arrivals].index(LONG.prompt_tokens) == 8
    assert facts["measured"]["worst_s"] == pytest.approx(_job(recorded)[1]["measured"]["worst_s"])


def test_a_loop_that_is_cut_does_not_fill_all_its_places_at_once(
    recorded: tuple[Reader, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.replay.curve_job._STEPS", 0)
    monkeypatch.setattr("app.replay.curve_job._LEAST_REQUESTS", 12)
    arrivals = _job(recorded)[0].recording.arrivals
    loop = [a for a in arrivals if a.streams]
    assert len({a.due_ns for a in loop[:STREAMS]}) == STREAMS, "as they came"
    assert {a.due_ns for a in loop[STREAMS:]} == {loop[0].due_ns}, "as places become free"
    timed = [a for a in arrivals if not a.streams]
    assert [a.due_ns for a in timed] == [LONG.due_ns]


def test_a_held_stretch_replays_the_requests_that_arrived_in_it(
    recorded: tuple[Reader, str],
) -> None:
    reader, run_id = recorded
    steps = reader.value("SELECT max(step) FROM steps WHERE run_id = $run", {"run": run_id})
    whole = len(_job(recorded, "0", str(steps))[0].recording.arrivals)
    half = len(_job(recorded, "0", str(steps // 2))[0].recording.arrivals)
    assert whole == 41
    assert 10 < half < 35
    with pytest.raises(UserError, match="no request arrived in the steps that are held"):
        _job(recorded, str(steps - 1), str(steps))


def test_what_arrives_while_it_is_asked_is_not_replayed(
    truth: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine goes on while the recording is read: all of it is of one instant."""
    store = Store(None)
    run_id = kept(store, truth)
    whole = read_recording(store.reader(), run_id)
    late = replace(truth.requests[0], request_id=max(truth.requests) + 1)

    def read(reader: Reader, asked_for: str) -> Recording:
        found = read_recording(reader, asked_for)
        store.append(run_id, {"requests": table_of("requests", [late])})
        store.flush()
        return found

    monkeypatch.setattr("app.replay.curve_job.read_recording", read)
    job, _ = curve_job(store.reader(), (run_id, "", ""))
    store.close()
    assert job.told["recorded"]["requests"] == len(whole.arrivals)
    assert len(job.recording.arrivals) <= len(whole.arrivals)


def test_several_schedulers_are_no_one_setting(truth: Outcome) -> None:
    store = Store(None)
    half = len(truth.steps) // 2
    steps = [*truth.steps[:half], *(replace(s, scheduler="static") for s in truth.steps[half:])]
    run_id = kept(store, replace(truth, steps=steps))
    facts = curve_job(store.reader(), (run_id, "", ""))[1]
    store.close()
    assert facts["measured"]["scheduler"] is None
    assert panel.measured_of(facts).name == "several schedulers"


def test_where_no_replay_is_possible_it_says_why(truth: Outcome) -> None:
    store = Store(None)
    few = kept(store, replace(truth, steps=truth.steps[:20], tokens=truth.tokens[:20]))
    with pytest.raises(UserError, match="the run has 20 steps: a step-time model needs 30"):
        curve_job(store.reader(), (few, "", ""))
    written(interfered(), store)
    with pytest.raises(UserError, match="does not hold the shape of its model"):
        curve_job(store.reader(), (RUN_ID, "", ""))
    store.close()


# --- one for all tabs ---


class Asked(Jobs):
    """Notes what was asked, and answers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Any] = []

    def start(self, job: Job) -> Work:
        self.jobs.append(job)
        return Work(done=1, total=8)


def test_a_curve_is_asked_once_and_again_only_on_demand(recorded: tuple[Reader, str]) -> None:
    jobs, a_job = Asked(), _job(recorded)[0]
    kept_ = Curves(jobs)
    key = key_of("r", {"show": "token budget"})
    assert kept_.of(key) is None
    for again in (False, False, True):
        kept_.ask(key, lambda: (a_job, {"requests": 3}), again=again)
    assert len(jobs.jobs) == 2
    told = kept_.of(key)
    assert told is not None
    assert (told.done, told.total, told.result) == (1, 8, None)
    held = key_of("r", {"first": "3", "last": "9"})
    assert held == ("r", "3", "9")

    def refused() -> Any:
        raise UserError("the run has 3 steps")

    kept_.ask(held, refused)
    told = kept_.of(held)
    assert told is not None
    assert told.error == "the run has 3 steps"


@pytest.mark.parametrize("run", ["live", RUN_ID])
def test_a_stream_sends_the_curve_as_it_goes_on(store: Store, run: str) -> None:
    written(interfered(), store)
    state.hold(FakeSession(store))
    asked_ = Request("interference", run, params=(("show", "token budget"),))
    work = Work(done=1, total=8)
    curves()._found[key_of(RUN_ID, {})] = Curve(work)
    try:
        before = version(asked_)
        assert "Replaying: 1 of 8" in render(asked_, store.reader()).html["headline"]
        work.done = 2
        after = version(asked_)
        assert before != after
        work.error = "the cache has 1 block"
        assert version(asked_) != after
        assert "the cache has 1 block" in render(asked_, store.reader()).html["blank"]
    finally:
        curves()._found.clear()
        state.hold(None)


# --- what is drawn ---


def view(result: dict[str, Any] | None, look: Theme = LIGHT, **more: Any) -> View:
    return panel.curve(Replays(3, 8, result, **more), {"budget": "64"}, look)


def trace(made: View, name: str) -> dict[str, Any]:
    return next(t for t in made.figures["interference"]["data"] if t["name"] == name)


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_every_budget_is_a_dot_with_its_range(result: dict[str, Any], look: Theme) -> None:
    made = view(result, look)
    json.dumps(made.figures, allow_nan=False)
    rows = panel.rows_of(result)
    for name, column, role in (
        ("worst gap", "worst_s", "prefill"),
        ("worst TTFT", "ttft_worst_s", "prefill"),
        ("median TTFT", "ttft_s", "decode"),
    ):
        dots = trace(made, name)
        assert dots["x"] == [4, 6, 10, 11]
        assert dots["y"] == pytest.approx(list(rows[column] * 1e3), rel=1e-3)
        up = [y + e for y, e in zip(dots["y"], dots["error_y"]["array"], strict=True)]
        assert up == pytest.approx(list(rows[f"{column}_high"] * 1e3), rel=2e-3)
        assert dots["marker"]["color"] == look.fill(role)
        assert all(text.endswith("predicted") for text in dots["text"])
    layout = made.figures["interference"]["layout"]
    assert layout["yaxis"]["type"] == "log"
    assert layout["xaxis"]["ticktext"] == ["16", "64", "1,024", "no budget"]


def test_what_was_measured_stands_where_it_ran(result: dict[str, Any]) -> None:
    measured = result["measured"]
    made = view(result)
    above, below = trace(made, "measured, y"), trace(made, "measured, y2")
    assert (above["x"], above["y"]) == ([11], [pytest.approx(measured["worst_s"] * 1e3, rel=1e-3)])
    assert below["y"] == pytest.approx(
        [measured["ttft_worst_s"] * 1e3, measured["ttft_s"] * 1e3], rel=1e-3
    )
    assert all(text.endswith("measured") for text in above["text"] + below["text"])
    chunked = {**measured, "scheduler": "chunked", "chunk_tokens": 64}
    assert trace(view({**result, "measured": chunked}), "measured, y")["x"] == [6]
    for scheduler in ("static", None):
        other = view({**result, "measured": {**measured, "scheduler": scheduler}})
        assert trace(other, "measured, y")["x"] == [12], "a place of its own"
        ticks = other.figures["interference"]["layout"]["xaxis"]["ticktext"]
        assert ticks[-2:] == ["no budget", "as recorded"]


def test_targets_are_lines_where_there_are_some(result: dict[str, Any]) -> None:
    lines = view(result).figures["interference"]["layout"]["shapes"]
    assert [s["y0"] for s in lines if s.get("xref") == "paper"] == [100.0, 1000.0]
    none = {"itl_slo_s": None, "ttft_slo_s": None}
    lines = view({**result, "goals": none}).figures["interference"]["layout"]["shapes"]
    assert [s["x0"] for s in lines] == [6.0], "only the budget that is spoken of"


def test_the_sentence_names_the_trade(result: dict[str, Any]) -> None:
    row = point(result, 64)
    m = result["measured"]
    text = view(result).html["headline"]
    later_s = row["ttft_worst_s"] - m["ttft_worst_s"]
    wanted = (
        f"<b>64 tokens a step: worst gap {duration(row['worst_s'])} instead of "
        f"{duration(m['worst_s'])} measured, worst TTFT +{duration(later_s)}.</b>"
    )
    assert wanted in text
    assert "Predicted by replay of 41 requests." in text


def test_where_several_settings_were_measured_it_is_held_against_no_budget(
    result: dict[str, Any],
) -> None:
    rows = panel.rows_of(result)
    none = rows[rows["budget"].isna()].to_dict("records")[0]
    for changes in ({"scheduler": None}, {"scheduler": "chunked", "chunk_tokens": 64}):
        other = {**result, "measured": {**result["measured"], **changes}}
        text = view(other).html["headline"]
        assert f"instead of {duration(none['worst_s'])} without a budget, worst TTFT +" in text


def test_what_stays_the_same_is_said_to_stay(result: dict[str, Any]) -> None:
    row = point(result, 64)
    same = {"worst_s": row["worst_s"] * 1.01, "ttft_worst_s": row["ttft_worst_s"]}
    text = view({**result, "measured": {**result["measured"], **same}}).html["headline"]
    assert "as measured, the same worst TTFT." in text


def test_the_table_tells_measured_from_predicted(result: dict[str, Any]) -> None:
    html = view(result).html["blame"]
    assert html.count("predicted by replay") == 4
    assert html.count("<td>measured</td>") == 1
    assert html.count('class="chosen"') == 1
    assert "none: whole prompts" in html
    assert "The range is that of 3 replays" in html


def test_on_its_way_refused_or_not_asked_it_says_so(store: Store) -> None:
    assert "Replaying: 3 of 8 budgets." in view(None).html["headline"]
    refused = view(None, error="the run has 3 steps").html
    assert "No curve of token budgets." in refused["headline"]
    assert "the run has 3 steps" in refused["blank"]
    assert not view(None).figures
    nothing = {"rows": [], "skipped": ["chunked of 16: a request needs 90 blocks"]}
    assert "needs 90 blocks" in view(nothing).html["blank"]
    written(interfered(), store)
    moment = Moment(replays=Replays(1, 8))
    params = {"show": "token budget"}
    made = interference.panels(store.reader(), RUN_ID, params, LIGHT, moment)
    assert "Replaying: 1 of 8 budgets." in made.html["headline"]
    assert made.html["counter"].startswith("step ")


def test_a_point_without_gaps_is_left_out_not_drawn_as_zero() -> None:
    rows = pd.DataFrame(
        {"budget": [64.0, 128.0], "tokens_per_s": [1.0, 1.0]}
        | {
            f"{name}{end}": [float("nan"), 0.5]
            for name in ("worst_s", "ttft_s", "ttft_worst_s")
            for end in ("", "_low", "_high")
        }
    )
    measured = Measured("continuous", None, False, None, None, None)
    made = token_budget(rows, measured, 64, (None, None), LIGHT)
    json.dumps(made, allow_nan=False)
    dots = next(t for t in made["data"] if t["name"] == "worst gap")
    assert dots["y"] == [None, 500.0]
