"""A real engine: a long prompt freezes the streams, the page says how much, chunking mends it."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from app.figures.gaps import BAD
from app.panels import interference
from app.panels.view import View
from app.theme import LIGHT
from app.units import duration, three
from app.wiring import Session
from engine.config import EngineConfig
from engine.models.names import DEFAULT_MODEL
from telemetry.clock import sleep_s
from tests.process.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]
STREAMS, OUTPUTS, PROMPT, BUDGET = 8, 90, 1024, 32
TRIES, STOPPED_S = 3, 1.5
START_S, RUN_S = 300.0, 300.0


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    config = EngineConfig(DEFAULT_MODEL, dtype="fp32", max_batch=STREAMS + 2, threads=1, live=True)
    made = Session(config, tmp_path_factory.mktemp("interference") / "run.duckdb")
    until(lambda: made.phase != "starting", "the engine to start", START_S)
    assert made.phase == "ready", made.failure
    yield made
    made.close()


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight streams that arrive together and answer equally long."""
    file = tmp_path_factory.mktemp("load") / "streams.csv"
    rows = "".join(f"2026-11-30 14:02:00.0,{128 + n},{OUTPUTS}\n" for n in range(STREAMS))
    file.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    return str(file)


def _rows(session: Session, sql: str, **params: Any) -> list[tuple[Any, ...]]:
    with session.store.reader() as reader:
        return reader.rows(sql, params)


def _value(session: Session, sql: str, **params: Any) -> Any:
    return _rows(session, sql, **params)[0][0]


def _streams(session: Session, workload: str) -> tuple[int, int]:
    """Eight streams that decode by themselves; the first step of that, and the first request."""
    first = int(_value(session, "SELECT coalesce(max(step) + 1, 0) FROM steps"))
    before = int(_value(session, "SELECT count(*) FROM requests"))
    session.load(workload, requests=STREAMS)
    until(lambda: session.status and session.status.load, "the load to be taken", 30)
    alone = (
        "SELECT count(*) FROM steps WHERE step >= $first AND phase = 'decode' "
        "AND decode_seqs = $streams"
    )
    until(lambda: _value(session, alone, first=first, streams=STREAMS) >= 10, "streams", RUN_S)
    return first, before


def _ended(session: Session, done: int, before: int, tokens: int) -> int:
    """Until all have answered and their tokens are recorded; the last step."""
    until(lambda: session.finished_requests == done, "all answers", RUN_S)
    recorded = "SELECT count(*) FROM tokens WHERE request_id >= $before"
    until(lambda: _value(session, recorded, before=before) == tokens, "their tokens", 30)
    return int(_value(session, "SELECT max(step) FROM steps"))


def _injected(session: Session, workload: str, scheduler: str) -> dict[str, Any]:
    """Streams, an injection among them, the end; what happened in that stretch of the run."""
    session.configure(scheduler=scheduler, chunk_tokens=BUDGET)
    done = session.finished_requests
    first, before = _streams(session, workload)
    session.inject(PROMPT)
    last = _ended(session, done + STREAMS + 1, before, STREAMS * OUTPUTS + 8)
    request = "SELECT request_id FROM requests WHERE label = 'inject' AND request_id >= $before"
    return {
        "first": first,
        "last": last,
        "request": int(_value(session, request, before=before)),
        "before": before,
    }


@pytest.fixture(scope="module")
def frozen(session: Session, workload: str) -> dict[str, Any]:
    """Again, where another process takes most of the core during that very step."""
    for _ in range(TRIES):
        made = _injected(session, workload, "continuous")
        if _dots(_page(session, made), "bad gaps, prefill")["y"]:
            break
    return made


@pytest.fixture(scope="module")
def chunked(session: Session, workload: str, frozen: dict[str, Any]) -> dict[str, Any]:
    return _injected(session, workload, "chunked")


def _page(session: Session, stretch: dict[str, Any], **params: str) -> View:
    chosen = {"first": str(stretch["first"]), "last": str(stretch["last"]), **params}
    assert session.run_id is not None
    with session.store.reader() as reader:
        return interference.panels(reader, session.run_id, chosen, LIGHT)


def _dots(view: View, name: str, xaxis: str = "x") -> dict[str, Any]:
    data = view.figures["interference"]["data"]
    return next(t for t in data if t["name"] == name and t["xaxis"] == xaxis)


def _hosts(view: View, xaxis: str) -> list[tuple[int, float]]:
    """Step and ms of the gaps that the page says are the host's."""
    dots = _dots(view, "bad gaps, host", xaxis)
    steps = [int(text.split("step ")[1]) for text in dots["text"]]
    return list(zip(steps, dots["y"], strict=True))


# The longest times between two emissions of a stream with prompt tokens of the request in it, from
# the steps that ran meanwhile, over the median of decode-only steps with like batch and context.
FACTORS = """
WITH emissions AS (
    SELECT request_id, step, lag(step) OVER (PARTITION BY request_id ORDER BY step) AS before
    FROM sequence_steps WHERE emitted_tokens > 0 AND step BETWEEN $first AND $last),
gaps AS (
    SELECT e.request_id, e.step, sum(s.t_step_s) AS gap_s
    FROM emissions e JOIN steps s ON s.step > e.before AND s.step <= e.step
    WHERE EXISTS (SELECT 1 FROM sequence_steps p WHERE p.request_id = $request
                  AND p.phase = 'prefill' AND p.step > e.before AND p.step <= e.step)
    GROUP BY e.request_id, e.step),
worst AS (SELECT step, max(gap_s) AS gap_s FROM gaps GROUP BY step ORDER BY gap_s DESC LIMIT 20),
loads AS (
    SELECT step, count(*) AS batch, sum(context_tokens) AS kv FROM sequence_steps
    WHERE phase = 'decode' GROUP BY step)
SELECT w.step, w.gap_s, median(s.t_step_s) AS baseline_s, count(*) AS n
FROM worst w JOIN loads o ON o.step = w.step
JOIN loads l ON abs(l.batch - o.batch) <= o.batch / 10 AND abs(l.kv - o.kv) <= o.kv / 10
JOIN steps s ON s.step = l.step AND s.phase = 'decode' AND s.step <= $last
GROUP BY w.step, w.gap_s ORDER BY w.gap_s DESC
"""


def _by_sql(
    session: Session, stretch: dict[str, Any], hosts: list[tuple[int, float]] | None = None
) -> tuple[float, float, float, int]:
    """gap, baseline, factor and how many steps the baseline is of.

    hosts: step and ms of gaps that the page says are the host's: on a machine that others use
    there may be some, and they are no prompt's.
    """
    names = ("first", "last", "request")
    for step, gap_s, baseline_s, n in _rows(session, FACTORS, **{k: stretch[k] for k in names}):
        if not any(step == s and ms == pytest.approx(gap_s * 1e3, 1e-3) for s, ms in hosts or []):
            return gap_s, baseline_s, gap_s / baseline_s, n
    raise AssertionError("all gaps of the request are the host's")


def test_an_inject_event_and_a_label_name_the_request(
    session: Session, frozen: dict[str, Any]
) -> None:
    details = _rows(session, "SELECT detail FROM events WHERE kind = 'inject' ORDER BY t_ns")
    wanted = {"request_id": frozen["request"], "prompt_tokens": PROMPT}
    assert json.loads(details[0][0]) == wanted
    facts = (
        "SELECT prompt_tokens, output_tokens, finish_reason FROM requests WHERE label = 'inject'"
    )
    assert _rows(session, facts)[0] == (PROMPT, 8, "length")


def test_the_factor_on_the_page_is_that_of_sql_and_the_request_is_named(
    session: Session, frozen: dict[str, Any]
) -> None:
    gap_s, _, factor, n = _by_sql(session, frozen)
    assert n >= 5
    assert factor > 5
    view = _page(session, frozen)
    dots = _dots(view, "bad gaps, prefill")
    place = dots["y"].index(max(dots["y"]))
    assert dots["y"][place] == pytest.approx(gap_s * 1e3, rel=1e-3)
    assert dots["customdata"][place] == pytest.approx(factor, rel=1e-3)
    text = view.html["headline"]
    assert text.startswith(f"<b>One {PROMPT:,}-token prompt froze {STREAMS} streams for")
    assert f"(×{three(factor)}," in text
    first = re.findall(r"<td>(.*?)</td>", view.html["blame"])[:7]
    assert first[:4] == [f"r-{frozen['request']} injected", f"{PROMPT:,}", "1", str(STREAMS)]
    assert first[5] == f"×{three(factor)}"


def test_chunking_divides_the_worst_gap_by_three_or_more_and_changes_no_token(
    session: Session, frozen: dict[str, Any], chunked: dict[str, Any]
) -> None:
    whole, pieces = _by_sql(session, frozen), _by_sql(session, chunked)
    assert whole[0] >= 3 * pieces[0]
    largest = (
        "SELECT max(tokens), count(*) FROM sequence_steps WHERE request_id = $request "
        "AND phase = 'prefill'"
    )
    most, steps = _rows(session, largest, request=chunked["request"])[0]
    assert most <= BUDGET
    assert steps >= PROMPT / BUDGET
    assert _answers(session, frozen) == _answers(session, chunked)


def _answers(session: Session, stretch: dict[str, Any]) -> list[list[int]]:
    """Token ids of the streams, in workload order."""
    rows = _rows(
        session,
        'SELECT list(token_id ORDER BY "index") FROM tokens WHERE request_id BETWEEN $a AND $b '
        "GROUP BY request_id ORDER BY request_id",
        a=stretch["before"],
        b=stretch["before"] + STREAMS - 1,
    )
    assert [len(tokens) for (tokens,) in rows] == [OUTPUTS] * STREAMS
    return [tokens for (tokens,) in rows]


def test_both_beside_each_other_say_what_chunking_did(
    session: Session, frozen: dict[str, Any], chunked: dict[str, Any]
) -> None:
    pin = f"{session.run_id}:{frozen['first']}-{frozen['last']}"
    view = _page(session, chunked, a=pin)
    text = view.html["headline"]
    gap_s, _, factor, n = _by_sql(session, chunked, _hosts(view, "x2"))
    assert n >= 5
    # Other prompts made gaps too, those with which the streams began: among all dots is this one.
    # Where weights are read slowly, a part of a prompt beside them may not even double a step.
    dots = _dots(view, "bad gaps, prefill", "x2")
    pairs = list(zip(dots["y"], dots["customdata"], strict=True))
    among = any(pair == pytest.approx((gap_s * 1e3, factor), rel=1e-3) for pair in pairs)
    assert among == (factor > BAD)
    told = re.escape(f"Chunked at {BUDGET}: {duration(gap_s)} (×{three(factor)}, ")
    assert re.search(told + r"\d+ gaps?\), TTFT ", text)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", view.html["blame"])[1:]
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
    mine = next(c for c in cells if c[0] == "B")
    assert mine[1] == f"r-{chunked['request']} injected"
    assert mine[5:7] == [duration(gap_s), f"×{three(factor)}"]
    texts = [n["text"] for n in view.figures["interference"]["layout"]["annotations"]]
    assert f"<b>B · chunked, {BUDGET} tokens a step · chosen steps</b>" in texts
    assert "<b>A · continuous · pinned</b>" in texts


def test_a_stopped_engine_is_the_hosts_fault(session: Session, workload: str) -> None:
    """Streams decode by themselves, and their process is stopped for a while."""
    session.configure(scheduler="continuous")
    done = session.finished_requests
    _, before = _streams(session, workload)
    first = int(_value(session, "SELECT max(step) FROM steps"))
    assert session.engine_pid is not None
    os.kill(session.engine_pid, signal.SIGSTOP)
    sleep_s(STOPPED_S)
    os.kill(session.engine_pid, signal.SIGCONT)
    last = _ended(session, done + STREAMS, before, STREAMS * OUTPUTS)
    view = _page(session, {"first": first, "last": last})
    dots = _dots(view, "bad gaps, host")
    assert max(dots["y"]) >= STOPPED_S * 1e3
    assert "<b>The host, not a prompt: worst gap " in view.html["headline"]
    assert "host: engine held up" in view.html["blame"]
    assert _dots(view, "bad gaps, prefill")["y"] == []


def test_a_prompt_that_cannot_be_is_refused_in_one_line(session: Session) -> None:
    session.rejections.clear()
    before = _value(session, "SELECT count(*) FROM requests")
    session.inject(0)
    session.inject(10**9)
    session.inject(8190)
    until(lambda: len(session.rejections) == 3, "three refusals")
    told = [r.message for r in session.rejections]
    assert told[0] == "prompt tokens is 0: use 1 or more"
    assert told[1].startswith("prompt tokens is 1000000000: use 1 to ")
    assert "8190 tokens + 8 to generate" in told[2]
    assert _value(session, "SELECT count(*) FROM requests") == before
