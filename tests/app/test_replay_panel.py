"""The panel of the Scheduling page: its sentence and rows from a prediction, and its worker."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest

from app.panels import replay as panel
from app.replay.jobs import Jobs, Work
from app.replay.sweep import Grid
from app.replay.worker import Job, answer
from engine.replay.recording import Recording
from telemetry.clock import now_ns, sleep_s
from tests.engine.replay.machine import Machine, arrivals, blank, recorded

SUMMARY: dict[str, Any] = {
    "output_tokens_per_s": 100.0,
    "makespan_s": 10.0,
    "ttft_s": {"p50": 0.1, "p99": 0.2},
    "tpot_s": {"p50": 0.01, "p99": None},
    "itl_s": {"p50": 0.01, "p99": 0.05, "max": 0.4},
    "padded_slot_fraction": 0.0,
    "preemptions": 0,
}
SETTINGS = {
    "scheduler": "chunked",
    "max_batch": 8,
    "chunk_tokens": 64,
    "kv_blocks": 100,
    "prefix_cache": False,
}


def predicted(**changes: Any) -> dict[str, Any]:
    found = {**deepcopy(SUMMARY), "settings": SETTINGS, "draws": 8}
    found |= {"low": deepcopy(SUMMARY), "high": deepcopy(SUMMARY)}
    return {**found, "largest_step_over_recorded": 1.0, **changes}


def prediction(**changes: Any) -> dict[str, Any]:
    residuals = {"phases": {"decode": {"steps": 9, "p5": -0.1, "p50": 0.0, "p95": 0.2}}}
    return {
        "recorded": SUMMARY,
        "predicted": predicted(**changes),
        "requests_left_out": 0,
        "notes": ["<b>a note</b>"],
        "model": {"residuals": {**residuals, "pace": [-0.1, 0.1]}},
    }


def rows(html: str) -> dict[str, str]:
    """Table rows by their first cell."""
    found = re.findall(r"<tr[^>]*><td>([^<]*)</td>(.*?)</tr>", html)
    return dict(found)


def test_the_sentence_names_the_worst_gap_and_a_throughput_that_changed() -> None:
    gap = {**SUMMARY["itl_s"], "max": 0.05}
    same = panel.sentence(prediction(itl_s=gap))
    assert "chunked of 64: worst gap 50.0 ms instead of 400 ms," in same
    assert "the same 100 tokens/s" in same
    assert "TTFT" not in same
    late = panel.sentence(prediction(itl_s=gap, ttft_s={"p50": 0.9, "p99": 1.0}))
    assert "median TTFT 900 ms instead of 100 ms" in late
    slower = panel.sentence(prediction(itl_s=gap, output_tokens_per_s=60.0))
    assert "60.0 tokens/s instead of 100" in slower


def test_a_prediction_is_drawn_left_of_the_recording_where_it_is_less() -> None:
    low, high = deepcopy(SUMMARY), deepcopy(SUMMARY)
    low["itl_s"]["max"], high["itl_s"]["max"] = 0.08, 0.2
    gap = {**SUMMARY["itl_s"], "max": 0.1}
    drawn = rows(panel.prediction(prediction(itl_s=gap, low=low, high=high)))["worst gap"]
    assert "<td>400 ms</td><td>100 ms</td><td>80.0 ms – 200 ms</td><td>-75%</td>" in drawn
    left = [float(place) for place in re.findall(r"left:(.*?)%", drawn)]
    width = float(re.findall(r"width:(.*?)%", drawn)[0])
    recorded_at, bar_at, point = left
    assert recorded_at == 50
    assert bar_at < point < bar_at + width < recorded_at
    assert bar_at >= 0


def test_what_neither_run_has_is_left_out_and_what_one_lacks_is_a_dash() -> None:
    drawn = rows(panel.prediction(prediction(padded_slot_fraction=0.3)))
    assert "preemptions" not in drawn
    assert "TPOT P99" not in drawn
    assert drawn["padded slot-steps"].startswith("<td>0%</td><td>30.0%</td>")


def test_text_from_outside_is_escaped_and_predictions_are_marked_as_modelled() -> None:
    found = prediction()
    found["predicted"]["settings"] = {**SETTINGS, "prefix_cache": True}
    html = panel.prediction(found)
    assert "&lt;b&gt;a note&lt;/b&gt;" in html
    assert 'class="ss-modelled">predicted' in html


def test_extrapolation_is_told() -> None:
    assert "extrapolated" not in panel.prediction(prediction())
    assert "12.0 times the rows" in panel.prediction(prediction(largest_step_over_recorded=12.0))


def grid(target: float | None, gaps: dict[int, float]) -> dict[str, Any]:
    points = [
        {
            "predicted": predicted(
                settings={**SETTINGS, "chunk_tokens": budget},
                itl_s={**SUMMARY["itl_s"], "max": gap},
            ),
            "meets_target": target is None or gap <= target,
        }
        for budget, gap in gaps.items()
    ]
    meeting = [p for p in points if p["meets_target"]]
    targets = {"itl_slo_s": target}
    common = {"skipped": ["a point: why"], "requests_left_out": 0, "notes": []}
    return {"rows": points, "best": meeting[0] if meeting else None, "targets": targets, **common}


def test_a_grid_marks_the_best_point_and_the_target() -> None:
    html = panel.grid(grid(0.1, {64: 0.05, 512: 0.3}))
    assert "Best for a worst gap of at most 100 ms: chunked of 64" in html
    assert html.count('class="best"') == 1
    assert html.count('class="target"') == 2
    assert "chunked of 512, batch 8, 100 KV blocks (misses)" in html
    assert "a point: why" in html
    places = [float(p) for p in re.findall(r'<u style="left:(.*?)%', html)]
    target = float(re.findall(r'"target" style="left:(.*?)%', html)[0])
    assert 0 < places[0] < target < places[1] < 100


def test_a_grid_without_a_point_says_what_to_do() -> None:
    assert "Relax the target" in panel.grid(grid(0.01, {64: 0.05}))


# --- the worker ---


@pytest.fixture(scope="module")
def recording() -> Recording:
    return recorded(blank(arrivals(40)), Machine())


def wait(work: Work, timeout_s: float = 120) -> None:
    until = now_ns() + int(timeout_s * 1e9)
    while work.running and now_ns() < until:
        sleep_s(0.05)


TOLD = {"recorded": SUMMARY, "requests_left_out": 0, "notes": []}


def test_a_sweep_of_a_long_run_replays_its_end_and_says_so(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = recorded(blank(arrivals(80)), Machine())
    job = Job(long, TOLD, long.settings, Grid(("chunked",), (64, 256)))
    whole = answer(job, lambda done, total: None)
    assert {row["predicted"]["requests"] for row in whole["rows"]} == {80}
    assert whole["skipped"] == []
    monkeypatch.setattr("app.replay.worker._MOST_STEPS", len(long.steps))
    part = answer(job, lambda done, total: None)
    assert {row["predicted"]["requests"] for row in part["rows"]} == {50}
    assert part["skipped"] == ["Replayed are the last 50 requests of a long run."]
    assert part["model"] == whole["model"], "all steps are fitted all the same"


@pytest.mark.process
def test_a_worker_gives_the_same_answer_as_this_process(recording: Recording) -> None:
    job = Job(recording, TOLD, recording.settings.changed(scheduler="static"))
    work = Jobs().start(job)
    wait(work)
    assert work.error is None
    assert work.result is not None
    assert (work.done, work.total) == (8, 8)
    here = answer(job, lambda done, total: None)
    assert work.result["predicted"]["itl_s"] == here["predicted"]["itl_s"]
    assert "worst gap" in panel.prediction(work.result)


@pytest.mark.process
def test_a_refusal_is_one_line_and_a_newer_question_replaces_an_older(
    recording: Recording,
) -> None:
    jobs = Jobs()
    old = jobs.start(Job(recording, TOLD, recording.settings))
    work = jobs.start(Job(recording, TOLD, recording.settings.changed(kv_blocks=1)))
    wait(work)
    wait(old)
    assert work.error is not None
    assert "but the cache has 1" in work.error
    assert old.result is not None or old.error is not None, "it does not run on unseen"
    assert old.process is not None
    assert old.process.poll() is not None
