"""Labels of events on time axes."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pandas as pd
import pytest

from app.figures.marks import MAX_LABELS, label, labels, lines
from app.theme import LIGHT
from telemetry.queries import live
from telemetry.store import Store
from tests.app.synthetic import RUN_ID, Simulation


@pytest.mark.parametrize(
    ("kind", "detail", "text"),
    [
        ("scheduler_switch", {"from": "static", "to": "continuous"}, "→ continuous"),
        ("max_batch", {"from": 8, "to": 10}, "max batch 10"),
        ("chunk_tokens", {"from": 256, "to": 64}, "budget 64"),
        ("prefix_cache", {"from": False, "to": True}, "prefix cache on"),
        ("prefix_cache", {"from": True, "to": False}, "prefix cache off"),
        ("kv_blocks", {"from": 640, "to": 64}, "KV 64 blocks"),
        ("preempt", {"request_id": 3, "blocks": 2, "computed_tokens": 20}, "preempted"),
        ("preempt", {"count": 14}, "preempted × 14"),
        ("load", {"workload": "skew", "concurrency": 8, "rate": None}, "skew × 8"),
        ("load", {"workload": "steady", "concurrency": None, "rate": 2.5}, "steady 2.5/s"),
        ("load", {"workload": "skew", "concurrency": None, "rate": None}, "skew"),
        ("load", {"workload": None}, "load off"),
        ("pause", {"single_step": False}, "pause"),
        ("peak_beaten", {}, "peak beaten: recalibrate"),
    ],
)
def test_words_for_what_the_engine_writes(kind: str, detail: Any, text: str) -> None:
    assert label(kind, json.dumps(detail)) == text


def test_a_broken_detail_still_has_a_label() -> None:
    assert label("scheduler_switch", "{") == "→ switch"


def crowd(kind: str, n: int, apart_s: float) -> pd.DataFrame:
    rows = [(-i * apart_s, i, kind, "{}") for i in range(n)][::-1]
    return pd.DataFrame(rows, columns=["x_s", "step", "kind", "detail"])


def test_labels_do_not_cover_each_other() -> None:
    shown = labels(LIGHT, crowd("pause", 40, 0.2), 30.0, yref="paper", y=1)
    assert 1 < len(shown) <= MAX_LABELS
    places = sorted(a["x"] for a in shown)
    assert all(b - a > 1 for a, b in itertools.pairwise(places))


def test_a_crowded_kind_is_named_once() -> None:
    shown = labels(LIGHT, crowd("peak_beaten", 10, 3.0), 30.0, yref="paper", y=1)
    assert len(shown) == 1


def test_a_label_left_of_its_mark_keeps_others_away() -> None:
    """Near the end of the axis labels stand left of their marks."""
    rows = [(-8.0, 1, "load", "{}"), (-1.5, 2, "pause", "{}"), (0.0, 3, "resume", "{}")]
    marks = pd.DataFrame(rows, columns=["x_s", "step", "kind", "detail"])
    shown = labels(LIGHT, marks, 30.0, yref="paper", y=1)
    assert [(a["text"], a["xanchor"]) for a in shown] == [("resume", "right"), ("load off", "left")]
    steps = labels(LIGHT, marks.assign(x_s=[2.0, 18.0, 40.0]), 40.0, 40.0, yref="paper", y=1)
    assert [(a["x"], a["xanchor"]) for a in steps] == [(40, "right"), (18, "left"), (2, "left")]


def test_what_somebody_did_is_named_before_what_happened() -> None:
    rows = [(-2.0, 1, "scheduler_switch", '{"to": "static"}'), (-0.5, 2, "peak_beaten", "{}")]
    marks = pd.DataFrame(rows, columns=["x_s", "step", "kind", "detail"])
    assert [a["text"] for a in labels(LIGHT, marks, 30.0, yref="paper", y=1)] == ["→ static"]
    apart = marks.assign(x_s=[-20.0, -0.5])
    assert len(labels(LIGHT, apart, 30.0, yref="paper", y=1)) == 2


def test_a_storm_of_preemptions_is_one_mark(store: Store) -> None:
    """Twenty within two seconds, a pause between two of them, and one much later."""
    simulation = Simulation()
    simulation.arrive(1)
    simulation.advance()
    start_ns = simulation.now_ns
    for n in range(20):
        simulation.now_ns = start_ns + n * 100_000_000
        simulation.event("preempt", f'{{"request_id": {n}}}')
        if n == 10:
            simulation.event("pause")
    simulation.now_ns = start_ns + 12_000_000_000
    simulation.event("preempt", '{"request_id": 20}')
    simulation.write(store)
    found = live.marks(store.reader(), RUN_ID, simulation.now_ns, 30.0)
    assert list(found["kind"]) == ["preempt", "pause", "preempt"]
    assert [label(k, d) for k, d in zip(found["kind"], found["detail"], strict=True)] == [
        "preempted × 20",
        "pause",
        "preempted",
    ]
    assert list(found["x_s"]) == pytest.approx([-12.0, -11.0, 0.0])


def test_preemptions_have_their_own_ink() -> None:
    rows = [(-8.0, 1, "load", "{}"), (-1.5, 2, "preempt", "{}")]
    marks = pd.DataFrame(rows, columns=["x_s", "step", "kind", "detail"])
    drawn = {t["name"]: t for t in lines(LIGHT, marks, 0.5, 4.5)}
    assert drawn["marks"]["x"] == [-8.0, -8.0, None]
    assert drawn["preempted"]["x"] == [-1.5, -1.5, None]
    assert drawn["preempted"]["y"] == [0.5, 4.5, None]
    assert drawn["preempted"]["line"]["color"] == LIGHT.lost
    assert [t["name"] for t in lines(LIGHT, marks[:1], 0, 1)] == ["marks"]
