"""Gaps of a window, judged on columns, against the views that define what they mean."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pytest
from telemetry_records import an_event
from test_interference_views import MS, Run, a_random_run, calm, decoding

from telemetry.gap_window import gaps, prompts, read_window
from telemetry.interference import POOL_STEPS
from telemetry.queries import interference as queries
from telemetry.reader import Reader
from telemetry.store import Store

NUMBERS = ("itl_s", "batch", "baseline_s", "interference_s", "inflation")


def by_view(reader: Reader, run_id: str, first: int, last: int) -> dict[tuple[int, int], Any]:
    """Rows of the view `interference`, by request and step."""
    frame = reader.frame(
        "SELECT * FROM interference WHERE run_id = ? AND step BETWEEN ? AND ?",
        [run_id, first, last],
    )
    return {(int(r["request_id"]), int(r["step"])): r for r in frame.to_dict("records")}


def by_window(reader: Reader, run_id: str, first: int, last: int) -> dict[tuple[int, int], Any]:
    frame = queries.gaps(reader, run_id, first, last)
    rows: dict[tuple[int, int], Any] = {}
    for row in frame.to_dict("records"):
        assert row["gaps"] == len(row["streams"])
        rows |= {(int(request), int(row["step"])): row for request in row["streams"]}
    assert list(frame["t_ns"]) == sorted(frame["t_ns"])
    return rows


def known(value: Any) -> Any:
    return None if value is None or pd.isna(value) else value


def same(found: dict[tuple[int, int], Any], wanted: dict[tuple[int, int], Any]) -> None:
    assert set(found) == set(wanted)
    for key, row in wanted.items():
        for name in ("after_step", "t_ns", "cause", "baseline_from"):
            assert known(found[key][name]) == known(row[name]), (key, name)
        for name in NUMBERS:
            mine, theirs = known(found[key][name]), known(row[name])
            near = None if theirs is None else pytest.approx(theirs, rel=1e-9, abs=1e-12)
            assert mine == near, (key, name)


def a_run_with_a_host(seed: int) -> Run:
    """As a_random_run, with peaks, OS switches, and stretches of batches that leave only a fit."""
    rng, run = random.Random(seed), Run()
    for k in range(160):
        batch = rng.choice((2, 3, 3, 3, 9)) if k % 40 < 30 else 4 + k % 5
        batch = 30 if k % 40 == 39 else batch  # so many that no fit reaches it
        rows = [(r, "decode", 1, rng.randint(80, 300)) for r in range(batch)]
        if rng.random() < 0.25 or batch == 30:
            rows = rows[: rng.choice((0, batch, batch))]
            kind = rng.choice(("prefill", "recompute"))
            many = rng.sample((90, 91, 92), rng.randint(1, 2))
            rows += [(r, kind, rng.randint(1, 60), rng.randint(0, 60)) for r in many]
        run.step(
            rng.choice((9, 10, 11, 25, 60)),
            rows,
            rng.choice((None, 0, 0, 0, 1, 5)),
            (rng.randint(1, 10**12), rng.choice((0, rng.randint(1, 10**12)))),
            math_ms=rng.choice((None, 1.0, 20.0, 50.0)),
            read_ms=rng.choice((None, 8.0, 8.0)),
        )
    return run


@pytest.mark.parametrize("make", [a_random_run, a_run_with_a_host])
@pytest.mark.parametrize("seed", range(6))
def test_a_window_of_all_steps_says_what_the_view_says(memory: Store, make: Any, seed: int) -> None:
    run = make(seed)
    run_id, last = run.write(memory), len(run.steps) - 1
    reader = memory.reader()
    wanted = by_view(reader, run_id, 0, last)
    same(by_window(reader, run_id, 0, last), wanted)
    assert len({known(r["cause"]) for r in wanted.values()}) >= 2


def test_all_ways_to_a_baseline_and_all_causes_were_compared(memory: Store) -> None:
    reader, ways, causes = memory.reader(), set(), set()
    for seed in range(6):
        run = a_run_with_a_host(seed)
        rows = by_view(reader, run.write(memory), 0, len(run.steps))
        ways |= {known(r["baseline_from"]) for r in rows.values()}
        causes |= {known(r["cause"]) for r in rows.values()}
    assert ways == {"median", "fit", None}
    assert causes == {"prefill", "host", "unexplained"}


def test_a_window_takes_its_baselines_from_before_it_and_never_from_later(memory: Store) -> None:
    run = a_random_run(3)
    run_id = run.write(memory)
    reader = memory.reader()
    before = queries.gaps(reader, run_id, 40, 80)
    for _ in range(50):
        run.step(30, decoding(1, 2, 3))
    longer = queries.gaps(reader, run.write(memory), 40, 80)
    pd.testing.assert_frame_equal(before, longer)


def test_the_pool_ends_so_many_steps_before_the_window(memory: Store) -> None:
    """Steps of another speed, just beyond it, are not among the baselines."""
    run = calm(20, took_ms=40)
    for _ in range(POOL_STEPS + 10):
        run.step(10, decoding(1, 2))
    reader, run_id = memory.reader(), run.write(memory)
    first = 20 + POOL_STEPS
    assert queries.gaps(reader, run_id, first, first)["baseline_s"].tolist() == [0.010]
    window = read_window(reader, run_id, first, first + 5)
    assert int(window.steps["step"].min()) == 20


def test_a_pause_is_nobodys_fault_in_a_window_either(memory: Store) -> None:
    run = calm(6)
    run.events = [an_event(run.now_ms * MS, "pause"), an_event((run.now_ms + 500) * MS, "resume")]
    run.now_ms += 500
    run.step(10, decoding(1, 2))
    run_id = run.write(memory)
    same(by_window(memory.reader(), run_id, 0, 9), by_view(memory.reader(), run_id, 0, 9))


def test_without_sequence_steps_there_are_gaps_and_nothing_else(memory: Store) -> None:
    run = a_random_run(1)
    run_id, last = run.write(memory, sequence_steps=False), len(run.steps) - 1
    found = queries.gaps(memory.reader(), run_id, 0, last)
    assert len(found) > 100
    for name in ("batch", "baseline_s", "inflation", "prompt_flops", "cause", "baseline_from"):
        assert found[name].isna().all(), name


def test_a_window_without_gaps_is_empty(memory: Store) -> None:
    run_id = calm(3).write(memory)
    window = read_window(memory.reader(), run_id, 0, 0)
    asked = prompts(window)
    assert asked.empty
    assert gaps(window, asked).empty
