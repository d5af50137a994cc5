"""`stepscope run` with the real model: equal answers, each at the price of its schedule."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.schema import TABLES, columns
from tests.commands import Command

# The runs are made in the first tests that need them.
pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

NS = 1_000_000_000
SHORT, LONG, COHORT, REQUESTS = 16, 180, 10, 20


@dataclass(frozen=True, slots=True)
class Run:
    """What the command printed, and its file opened as anyone would."""

    summary: dict[str, Any]
    file: duckdb.DuckDBPyConnection

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.file.execute(sql).fetchall()

    def value(self, sql: str) -> Any:
        return self.rows(sql)[0][0]


def _run(command: Command, scheduler: str) -> Iterator[Run]:
    ended = command.run(
        *("run", "--scheduler", scheduler, "--workload", "skew", "--max-batch", COHORT),
        *("--requests", REQUESTS),
        *("--dtype", "fp32", "--threads", 1, "--db", f"{scheduler}.duckdb", "--json"),
        timeout_s=280,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    with duckdb.connect(command.folder / f"{scheduler}.duckdb", read_only=True) as file:
        yield Run(json.loads(ended.stdout), file)


@pytest.fixture(scope="module")
def command(stepscope: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(stepscope, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def static(command: Command) -> Iterator[Run]:
    yield from _run(command, "static")


@pytest.fixture(scope="module")
def continuous(command: Command) -> Iterator[Run]:
    yield from _run(command, "continuous")


@pytest.fixture(params=["static", "continuous"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.getfixturevalue(request.param)
    return found


# --- static against continuous ---


def test_every_request_is_answered_alike(static: Run, continuous: Run) -> None:
    assert static.summary["outputs_sha256"] == continuous.summary["outputs_sha256"]
    for run in (static, continuous):
        assert run.summary["requests"] == run.summary["completed"] == REQUESTS
        assert run.summary["output_tokens"] == (LONG + 9 * SHORT) * REQUESTS // COHORT


def test_static_pads_most_slots_and_continuous_none(static: Run, continuous: Run) -> None:
    assert static.summary["padded_slot_fraction"] > 0.5
    assert continuous.summary["padded_slot_fraction"] == 0
    assert static.value("SELECT max(padded_slots) FROM steps") == COHORT - 1
    assert continuous.value("SELECT sum(padded_slots) + sum(padded_flops) FROM steps") == 0


def test_a_step_of_a_static_cohort_does_not_shrink_when_short_requests_finish(static: Run) -> None:
    """Every row that ran still runs: the same linear and head work, more attention as KV grows."""
    decode = "FROM steps WHERE phase = 'decode'"
    work = static.rows(f"SELECT DISTINCT linear_flops + head_flops {decode}")
    assert len(work) == 1
    rows = static.rows(
        "SELECT DISTINCT sum(tokens) FROM sequence_steps s JOIN steps USING (step) "
        "WHERE steps.phase = 'decode' GROUP BY step"
    )
    assert rows == [(COHORT,)]
    flops = "SELECT median(flops) FROM steps WHERE phase = 'decode' AND padded_slots"
    assert static.value(f"{flops} >= 8") > static.value(f"{flops} = 0")
    _print_step_times(static)


def _print_step_times(static: Run) -> None:
    """For people (pytest -s): a time is the machine's, so no test is decided by it."""
    times = "SELECT t_step_s FROM steps WHERE phase = 'decode' AND padded_slots"
    full = statistics.median(t for (t,) in static.rows(f"{times} = 0"))
    padded = statistics.median(t for (t,) in static.rows(f"{times} >= 8"))
    print(f"static decode step: {full * 1e3:.1f} ms full, {padded * 1e3:.1f} ms with 8+ padded")


def test_continuous_needs_little_more_than_half_of_the_steps_and_work(
    static: Run, continuous: Run
) -> None:
    """Each cohort of static lasts as long as its longest answer; continuous overlaps them."""
    assert static.summary["steps"] == LONG * REQUESTS // COHORT
    assert continuous.summary["steps"] * 1.8 < static.summary["steps"]
    flops = [run.value("SELECT sum(flops) FROM steps") for run in (static, continuous)]
    needed = [
        run.value("SELECT sum(flops - padded_flops) FROM steps") for run in (static, continuous)
    ]
    assert flops[0] > 1.8 * flops[1]
    assert needed[0] == needed[1]
    ratio = static.summary["makespan_s"] / continuous.summary["makespan_s"]
    print(f"continuous finishes {ratio:.2f} times sooner")


# --- what holds for any run ---


def test_gaps_between_tokens_sum_to_the_generation_time_in_integers(run: Run) -> None:
    wrong = run.rows("""
        WITH gaps AS (
          SELECT request_id, t_ns - lag(t_ns) OVER (PARTITION BY request_id ORDER BY "index") gap
          FROM tokens)
        SELECT request_id FROM requests r
        WHERE finished_ns - first_token_ns
              IS DISTINCT FROM (SELECT sum(gap) FROM gaps g WHERE g.request_id = r.request_id)""")
    assert wrong == []
    assert run.value("SELECT count(*) FROM requests WHERE finished_ns > first_token_ns") == REQUESTS


def test_tokens_are_numbered_and_counted(run: Run) -> None:
    counted = run.rows("""
        SELECT r.output_tokens, count(*), min("index"), max("index"), count(DISTINCT "index")
        FROM requests r JOIN tokens t USING (request_id) GROUP BY r.request_id, r.output_tokens""")
    assert all((n, 0, n - 1, n) == tuple(rest) for n, *rest in counted)


def test_parts_of_a_step_sum_to_the_step(run: Run) -> None:
    """Integer nanoseconds as doubles: equal but for the rounding of four additions."""
    assert (
        run.value("""
        SELECT max(abs(schedule_s + prepare_s + forward_s + sample_s - t_step_s)) FROM steps
        """)
        < 1e-12 * 100
    )
    assert (
        run.value("""
        SELECT min(least(schedule_s, prepare_s, forward_s, sample_s)) FROM steps""")
        >= 0
    )


def test_steps_are_contiguous_and_never_overlap(run: Run) -> None:
    steps = run.rows("SELECT step, t_start_ns, t_step_s FROM steps ORDER BY step")
    assert [step for step, *_ in steps] == list(range(run.summary["steps"]))
    ends = [start + round(t_step_s * NS) for _, start, t_step_s in steps]
    assert all(end <= after[1] for end, after in zip(ends, steps[1:], strict=False))


def test_work_is_counted_per_sequence_as_per_step(run: Run) -> None:
    wrong = run.rows("""
        SELECT step, s.flops FROM steps s JOIN (
          SELECT step, sum(tokens) FILTER (phase = 'prefill') AS prefill,
                 sum(tokens) FILTER (phase = 'decode') AS decode,
                 count(*) FILTER (phase = 'padded') AS padded, sum(emitted_tokens) AS emitted
          FROM sequence_steps GROUP BY step) q USING (step)
        LEFT JOIN (SELECT step, count(*) AS tokens FROM tokens GROUP BY step) t USING (step)
        WHERE coalesce(q.decode, 0) != s.decode_tokens OR q.padded != s.padded_slots
           OR q.emitted != coalesce(t.tokens, 0)
           OR coalesce(q.prefill, 0) - s.padded_prefill_tokens != s.prefill_tokens""")
    assert wrong == []


def test_nothing_was_dropped(run: Run) -> None:
    assert run.summary["dropped_records"] == 0
    assert run.value("SELECT count(*) FROM events WHERE kind = 'drop'") == 0


def test_the_file_holds_every_table_and_column(run: Run) -> None:
    for table in TABLES:
        held = [name for (name, *_) in run.rows(f"DESCRIBE {table}")]
        assert held[0] == "run_id"
        assert set(columns(table)) <= set(held)


def test_the_run_says_what_it_ran_against(run: Run) -> None:
    (facts,) = run.rows("""
        SELECT clock, source, dtype, kv_dtype, peaks_source, peak_flops > 0, peak_bandwidth > 0
        FROM runs""")
    assert facts == ("real", "embedded", "fp32", "fp32", "measured", True, True)
    assert run.rows("SELECT DISTINCT run_id FROM runs") == [(run.summary["run_id"],)]


def test_one_token_has_no_time_per_output_token(command: Command, tiny_model: Path) -> None:
    """TPOT of N = 1 is NULL, as is every percentile over no values."""
    (command.folder / "one.jsonl").write_text(
        '{"timestamp": 0, "input_length": 20, "output_length": 1}\n'
    )
    ended = command.run(
        *("run", "--model", tiny_model, "--workload", "one.jsonl", "--db", "one.duckdb"),
        *("--threads", 1, "--json"),
    )
    summary = json.loads(ended.stdout)
    assert (summary["output_tokens"], summary["steps"]) == (1, 1)
    assert summary["tpot_s"] == {"p50": None, "p99": None}
    assert summary["itl_s"] == {"p50": None, "p99": None, "max": None}
    assert summary["ttft_s"]["p50"] > 0


def test_a_second_run_is_added_to_the_file(command: Command, tiny_model: Path) -> None:
    lines = [
        command.run(
            *("run", "--model", tiny_model, "--requests", 3, "--db", "two.duckdb", "--json"),
            *("--seed", seed, "--threads", 1),
        ).stdout
        for seed in (1, 1, 2)
    ]
    first, again, other = (json.loads(line) for line in lines)
    assert first["outputs_sha256"] == again["outputs_sha256"] != other["outputs_sha256"]
    with duckdb.connect(command.folder / "two.duckdb", read_only=True) as file:
        (count,) = file.execute("SELECT count(DISTINCT run_id) FROM requests").fetchall()[0]
    assert count == 3
